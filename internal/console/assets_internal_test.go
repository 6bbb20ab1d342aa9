package console

import "testing"

// The script and the style have at most 60 kB together, and the font at most 40 kB.
func TestSizesOfAssets(t *testing.T) {
	t.Parallel()
	size := func(names ...string) (sum int) {
		for _, name := range names {
			text, err := assetFiles.ReadFile("assets/" + name)
			if err != nil {
				t.Fatal(err)
			}
			sum += len(text)
		}
		return sum
	}
	if n := size("console.css", "console.js"); n > 60_000 {
		t.Errorf("the script and the style have %d bytes", n)
	}
	if n := size("inter.woff2"); n > 40_000 {
		t.Errorf("the font has %d bytes", n)
	}
}
