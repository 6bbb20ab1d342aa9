package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
)

func TestSealFileInDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	_, yaml, _ := strings.Cut(string(text), "```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```")
	dir := t.TempDir()
	secret, _, err := seal.NewKey("taskledger/6f1ed002-ab5e-4e4c-9a4b-5d3f6b8f3c11")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"seal.key": secret, "hook": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"seal.yaml": strings.NewReplacer("/etc/taskledger", dir, "/run/secrets", dir).Replace(yaml),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	json, err := newApp().readJSON(filepath.Join(dir, "seal.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if f, err := sealer.Parse(json); err != nil || len(f.Witnesses) != 1 || len(f.Webhooks) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}
