package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/webhooks"
)

// The file in docs/webhooks.md is valid.
func TestWebhooksInDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	secret := []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	for _, name := range []string{"shop", "resize"} {
		if err := os.WriteFile(filepath.Join(dir, name), secret, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var blocks [][]byte // as JSON
	for i, block := range strings.Split(string(text), "```yaml\n")[1:] {
		yaml, _, _ := strings.Cut(block, "```")
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(yaml, "/run/secrets", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
		json, err := newApp().readJSON(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, json)
	}
	if len(blocks) != 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	if f, err := webhooks.Parse(blocks[0]); err != nil || len(f.Receivers) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := webhooks.ParsePush(blocks[1]); err != nil || len(f.Push) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}
