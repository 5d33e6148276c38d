package browsertest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/dashboard"
)

// TestScreenshots writes the pictures of the documentation.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		t.Skip("SCREENSHOTS is not set")
	}
	w := newWorld(t, dashboard.Config{Title: "shop", Actions: true, Authorize: everybody})
	time.Sleep(50 * time.Second) // a picture of nothing shows nothing
	w.sick.Store("inventory", true)
	time.Sleep(22 * time.Second)
	for _, shot := range []struct {
		name, hash, theme string
		width, height     int64
		full              bool
	}{
		{"dashboard-light", "#/", "light", 1400, 900, true},
		{"dashboard-dark", "#/", "dark", 1400, 900, true},
		{"dashboard-detail-light", "#/d/inventory", "light", 1400, 900, true},
		{"dashboard-detail-dark", "#/d/inventory", "dark", 1400, 900, true},
		{"dashboard-phone", "#/", "dark", 390, 844, false},
		{"dashboard-phone-detail", "#/d/inventory", "light", 390, 844, false},
	} {
		p := open(t, w.url+shot.hash, shot.width, shot.height)
		js[bool](p, "localStorage.setItem('theme', "+quote(shot.theme)+"), location.reload(), true")
		p.await("document.querySelector('.mode.live') && document.querySelector('.question')")
		if shot.hash != "#/" {
			p.await("document.querySelector('canvas.heat')")
		}
		time.Sleep(2500 * time.Millisecond)
		action := chromedp.CaptureScreenshot()
		if shot.full {
			action = chromedp.FullScreenshot(100)
		}
		picture, err := chromedp.Run(p.ctx, action)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, shot.name+".png"), picture, 0o644))
	}
}
