package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestSpecs(t *testing.T) {
	t.Parallel()
	fsys := files(map[string]string{
		"gate/a.go": `package gate

type Config struct {
	Name, Mode string
	CoDel CoDel
	Rate Rate
	Lanes []Lane
	hidden int
	On func(Event)
}

type CoDel struct{ Target int }
type Rate struct{ Per int }
type Lane struct{ Weight int }
type Event struct{ Time int }
type Snapshot struct{ Calls int }
type Live struct{ n int }
type Open struct{ Rate Rate }

func PerSecond(n int) Rate { return Rate{n} }
func (l *Live) BuildPolicy() {}
`,
		"gate/b.go":               "package gate\n\nfunc (o Open) Validate() error { return nil }\n\nfunc NewOpen(o Open) (Open, error) { return o, nil }\n",
		"gate/b_test.go":          "package gate\n\ntype TestConfig struct{ N int }\n",
		"kind/c.go":               "package kind\n\ntype spec struct{ N int }\n\ntype Func[T any] struct{ When T }\n\nfunc (f Func[T]) BuildPolicy() {}\n",
		"internal/hidden/x.go":    "package hidden\n\ntype Config struct{ N int }\n",
		"cmd/tool/internal/x.go":  "package x\n\ntype Config struct{ N int }\n",
		"examples/own-gate/a.go":  "package main\n\ntype Config struct{ N int }\n",
		"gate/testdata/ignore.go": "not Go\n",
	})
	list, err := listFiles(fsys)
	if err != nil {
		t.Fatal(err)
	}
	got, err := specs(fsys, list)
	if err != nil {
		t.Fatal(err)
	}
	const want = "[{gate CoDel [Target] Config} {gate Config [Name Mode CoDel Rate Lanes On] } " +
		"{gate Lane [Weight] Config} {gate Open [Rate] } {kind Func [When] }]"
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestCheckFields(t *testing.T) {
	t.Parallel()
	const table = "| field | meaning |\n|---|---|\n"
	one := []spec{{dir: "gate", name: "Config", fields: []string{"Name", "Limit"}}}
	two := append([]spec{{dir: "gate", name: "Pool", fields: []string{"Name", "Queue"}}}, one...)
	inner := append([]spec{{dir: "gate", name: "CoDel", fields: []string{"Target"}, in: "Config"}}, one...)
	tests := []struct {
		name, text string
		specs      []spec
		want       string // part of the only fault, or "" for none
	}{
		{name: "all there", specs: one, text: table + "| `Name` | |\n| `Limit` | |\n"},
		{name: "two in a row", specs: one, text: table + "| `Name`, `Limit` | |\n"},
		{name: "one is missing", specs: one, text: table + "| `Name` | `Limit` |\n", want: "no table of gate.Config has Limit"},
		{name: "prose is no table", specs: one, text: table + "| `Name` | |\n\n`Limit` is the limit.\n", want: "has Limit"},
		{name: "code is no table", specs: one, text: table + "| `Name` | |\n\n```go\n| `Limit` | |\n```\n", want: "has Limit"},
		{name: "words are not names", specs: one, text: table + "| `Name` | |\n| Limit | |\n", want: "has Limit"},
		{name: "part of a name", specs: one, text: table + "| `Name` | |\n| `LimitAll` | |\n", want: "has Limit"},
		{name: "two structs", specs: two, text: "## Config\n" + table + "| `Name`, `Limit` | |\n\n`gate.Pool`:\n\n" + table + "| `Name`, `Queue` | |\n"},
		{name: "a field of the other", specs: two, text: "## Config\n" + table + "| `Name`, `Limit` | |\n\n`gate.Pool`:\n\n" + table + "| `Queue` | |\n", want: "no table of gate.Pool has Name"},
		{name: "one table for both", specs: two, text: "`Config` and `Pool`:\n" + table + "| `Name`, `Limit`, `Queue` | |\n"},
		{name: "a struct that is not named", specs: two, text: "## Config\n" + table + "| `Name`, `Limit`, `Queue` | |\n", want: "no table of gate.Pool has Name, Queue"},
		{name: "inside another", specs: inner, text: "## Config\n" + table + "| `Name`, `Limit` | |\n| `CoDel.Target` | |\n"},
		{name: "missing inside another", specs: inner, text: "## Config\n" + table + "| `Name`, `Limit`, `CoDel` | |\n", want: "no table of gate.CoDel has Target"},
	}
	for _, tt := range tests {
		got := checkFields(map[string]*page{"docs/reference/gate.md": parsePage("docs/reference/gate.md", tt.text)}, tt.specs)
		switch {
		case tt.want == "" && len(got) > 0:
			t.Errorf("%s: got %v, want none", tt.name, got)
		case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0].String(), tt.want)):
			t.Errorf("%s: got %v, want one with %q", tt.name, got, tt.want)
		}
	}
	same(t, checkFields(nil, one), "docs/reference/gate.md: there is no such page, and gate.Config has fields")
	same(t, checkFields(map[string]*page{"docs/reference/telemetry.md": parsePage("", "| `N` |\n")}, []spec{{dir: "otelx", name: "CollectorConfig", fields: []string{"N"}}}))
}
