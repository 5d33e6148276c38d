package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"github.com/breakwater-go/breakwater/dashboard"
)

const every = time.Second

// colours of levels; the marks and words say the same.
var colours = [...]string{"green", "deepskyblue", "yellow", "red"}

func colour(l dashboard.Level) string { return colours[min(max(int(l), 0), len(colours)-1)] }

// View is the dashboard on a terminal.
type View struct {
	client *Client
	app    *tview.Application
	root   *tview.Flex
	head   *tview.TextView
	list   *tview.Table
	text   *tview.TextView
	foot   *tview.TextView

	mu     sync.Mutex
	chosen string // the dependency that is shown in full; empty for the answers
	paused bool
	look   chan struct{} // asks for a reading at once
}

// headLines are those of the head while nothing is wrong with the configuration.
const headLines = 2

const (
	keysList = " enter: one dependency   space: pause   q: quit"
	keysOne  = " esc: the answers   space: pause   q: quit"
)

// NewView returns a view of a dashboard. A nil screen is the terminal.
func NewView(client *Client, screen tcell.Screen) *View {
	v := &View{
		client: client, app: tview.NewApplication(), look: make(chan struct{}, 1),
		head: tview.NewTextView().SetDynamicColors(true), list: tview.NewTable().SetFixed(1, 2).SetSelectable(true, false),
		text: tview.NewTextView().SetDynamicColors(true).SetWordWrap(true), foot: tview.NewTextView(),
	}
	if screen != nil {
		v.app.SetScreen(screen)
	}
	v.foot.SetText(keysList)
	v.text.SetBorder(true)
	v.list.SetSelectedFunc(func(row, _ int) { v.choose(v.nameIn(row)) })
	v.list.SetSelectionChangedFunc(func(row, _ int) {
		v.mu.Lock()
		one := v.chosen != ""
		v.mu.Unlock()
		if one {
			v.choose(v.nameIn(row))
		}
	})
	v.app.SetInputCapture(v.key)
	v.root = tview.NewFlex().SetDirection(tview.FlexRow).
		AddItem(v.head, headLines, 0, false).
		AddItem(v.list, 0, 2, true).
		AddItem(v.text, 0, 3, false).
		AddItem(v.foot, 1, 0, false)
	v.app.SetRoot(v.root, true)
	return v
}

// Run shows the dashboard until somebody quits or ctx ends.
func (v *View) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { v.read(ctx) })
	stop := context.AfterFunc(ctx, v.app.Stop)
	err := v.app.Run()
	stop()
	cancel()
	reading.Wait()
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	return nil
}

func (v *View) key(e *tcell.EventKey) *tcell.EventKey {
	switch {
	case e.Rune() == 'q', e.Key() == tcell.KeyCtrlC:
		v.app.Stop()
	case e.Key() == tcell.KeyEscape:
		v.choose("")
	case e.Rune() == ' ':
		v.mu.Lock()
		v.paused = !v.paused
		v.mu.Unlock()
		v.again()
	default:
		return e
	}
	return nil
}

func (v *View) choose(name string) {
	v.mu.Lock()
	v.chosen = name
	v.mu.Unlock()
	v.foot.SetText(map[bool]string{true: keysList, false: keysOne}[name == ""])
	v.again()
}

// again asks for a reading at once.
func (v *View) again() {
	select {
	case v.look <- struct{}{}:
	default:
	}
}

func (v *View) nameIn(row int) string {
	if name, ok := v.list.GetCell(row, 1).GetReference().(string); ok {
		return name
	}
	return ""
}

// read asks the dashboard once a second, and draws what it says.
func (v *View) read(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	asked := true
	for {
		v.mu.Lock()
		paused, chosen := v.paused, v.chosen
		v.mu.Unlock()
		if !paused || asked {
			v.readOnce(ctx, chosen, paused)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			asked = false
		case <-v.look:
			asked = true
		}
	}
}

func (v *View) readOnce(ctx context.Context, chosen string, paused bool) {
	o, err := v.client.Overview(ctx)
	var d dashboard.Detail
	if err == nil && chosen != "" {
		d, err = v.client.Detail(ctx, chosen)
	}
	if ctx.Err() != nil {
		return
	}
	draw := func() {
		if err != nil { // what was read before stays
			v.head.SetText("[red]" + tview.Escape(err.Error()) + "[-]")
			return
		}
		v.drawList(&o, paused)
		if chosen == "" {
			v.drawAnswers(o.Answers)
		} else {
			v.drawDetail(&d)
		}
	}
	// After Stop nobody takes what is queued any more.
	done := make(chan struct{})
	go func() {
		defer close(done)
		v.app.QueueUpdateDraw(draw)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (v *View) drawList(o *dashboard.Overview, paused bool) {
	state := ""
	if paused {
		state = "  [deepskyblue]paused[-]"
	}
	level := dashboard.LevelFine
	for i := range o.Cards {
		level = max(level, o.Cards[i].Level)
	}
	head := fmt.Sprintf(" [::b]%s[::-]  %s%s\n [%s::b]%s[-::-]", tview.Escape(o.About.Title), time.UnixMilli(o.At).Format(time.TimeOnly), state, colour(level), verdict(o))
	lines := headLines
	if what, faults := faultsOf(o); what != "" {
		text := tview.Escape(strings.Join(append([]string{what}, faults...), "\n "))
		head += "\n [red]" + text + "[-]"
		lines += 1 + len(faults)
	}
	v.root.ResizeItem(v.head, lines, 0)
	v.head.SetText(head)
	at := v.nameIn(first(v.list.GetSelection()))
	v.list.Clear()
	for i, name := range columns {
		v.list.SetCell(0, i, tview.NewTableCell(name).SetSelectable(false).SetTextColor(tcell.ColorGray).SetAlign(align(i)))
	}
	chosen := 1
	for n := range o.Cards {
		c := &o.Cards[n]
		for i, text := range cells(c) {
			cell := tview.NewTableCell(tview.Escape(text)).SetAlign(align(i)).SetMaxWidth(40)
			if i == 0 || i == 2 {
				cell.SetTextColor(tcell.GetColor(colour(c.Level)))
			}
			v.list.SetCell(n+1, i, cell.SetReference(c.Name))
		}
		if c.Name == at {
			chosen = n + 1
		}
	}
	if len(o.Cards) > 0 && first(v.list.GetSelection()) != chosen {
		v.list.Select(chosen, 0)
	}
}

func first(a, _ int) int { return a }

func align(column int) int {
	if column < 3 {
		return tview.AlignLeft
	}
	return tview.AlignRight
}

func (v *View) drawAnswers(answers []dashboard.Answer) {
	v.text.SetTitle(" ten questions ")
	v.text.SetText(answersText(answers))
}

func answersText(answers []dashboard.Answer) string {
	var b strings.Builder
	for _, a := range answers {
		fmt.Fprintf(&b, "[gray]%s[-] [%s]%s[-]\n", a.Question, colour(a.Level), tview.Escape(a.Short))
	}
	return b.String()
}

func (v *View) drawDetail(d *dashboard.Detail) {
	v.text.SetTitle(" " + tview.Escape(d.Card.Name) + " ")
	var b strings.Builder
	fmt.Fprintf(&b, "[%s::b]%s %s[-::-]  %s\n\n", colour(d.Card.Level), mark(d.Card.Level), tview.Escape(status(&d.Card)), tview.Escape(story(&d.Card, d.At)))
	for _, p := range d.Policies {
		fmt.Fprintf(&b, "[::b]%s[::-] %s", tview.Escape(p.Name), tview.Escape(p.Words))
		for _, r := range p.Refused {
			fmt.Fprintf(&b, "  [red]refuses %.1f/s: %s[-]", r.PerSecond, tview.Escape(r.Reason))
		}
		b.WriteByte('\n')
	}
	b.WriteString("\n" + answersText(d.Answers))
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&b, "\n[gray]%s[-]\n%s\n", title, strings.Join(lines, "\n"))
		}
	}
	var changes, refusals, failures []string
	for _, c := range d.Changes[:min(len(d.Changes), 8)] {
		move := ""
		if c.From != c.To {
			move = c.From + " → " + c.To + " "
		}
		changes = append(changes, tview.Escape(clock(c.At)+" "+c.Policy+" "+move+c.Words))
	}
	for _, in := range d.Refusals[:min(len(d.Refusals), 4)] {
		refusals = append(refusals, tview.Escape(clock(in.At)+" "+in.Words))
	}
	for _, in := range d.Failures[:min(len(d.Failures), 4)] {
		failures = append(failures, tview.Escape(strings.Join(slices.DeleteFunc([]string{clock(in.At), in.Words, in.Error}, func(s string) bool { return s == "" }), " ")))
	}
	section("set by hand", byHand(d.Settings))
	section("timeline", changes)
	section("last refusals", refusals)
	section("last failures", failures)
	v.text.SetText(b.String())
}

// byHand lists the settings that somebody has made, with where they come from and until
// when they hold.
func byHand(settings []dashboard.PolicySettings) (lines []string) {
	for _, p := range settings {
		for _, s := range p.Settings {
			if s.Layer != "hand" {
				continue
			}
			line := fmt.Sprintf("%s.%s %s (%s)", p.Policy, s.Field, s.Value, s.Origin)
			if s.Until > 0 {
				line += " until " + clock(s.Until)
			}
			lines = append(lines, tview.Escape(line))
		}
	}
	return lines
}

func clock(ms int64) string { return time.UnixMilli(ms).Format(time.TimeOnly) }
