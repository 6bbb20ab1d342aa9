package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A recording is valid XML, shows each line in its order, and shortens long waits.
func TestRender(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 40)
	svg := render([]line{{0, "$ demo"}, {time.Minute, `<b> & "c"`}, {2 * time.Minute, long}})
	var parsed struct {
		Texts []string `xml:"text"`
	}
	if err := xml.Unmarshal([]byte(svg), &parsed); err != nil {
		t.Fatalf("%v:\n%s", err, svg)
	}
	if len(parsed.Texts) != 4 || parsed.Texts[0] != "$ demo" || parsed.Texts[1] != `<b> & "c"` {
		t.Errorf("the lines are %q", parsed.Texts)
	}
	for _, text := range parsed.Texts {
		if len(text) > maxColumns {
			t.Errorf("%d columns: %q", len(text), text)
		}
	}
	if !strings.Contains(svg, "animation:10900ms") { // 0.5 s, two shortened waits, and 8 s
		t.Errorf("the waits are not shortened:\n%s", svg)
	}
}

// A command that fails leaves the recording as it was.
func TestFailureIsNotRecorded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "demo.svg")
	if err := record(file, "sh", "-c", "echo one; exit 1"); err == nil {
		t.Error("a failure was recorded")
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a recording of a failure: %v", err)
	}
	if err := record(file, "sh", "-c", "echo one; echo two >&2"); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(svg), ">one<") || !strings.Contains(string(svg), ">two<") {
		t.Errorf("%v:\n%s", err, svg)
	}
}
