package api_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
)

// The examples of docs/http.md work as printed, in their order.
func TestExamplesOfTheDocument(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	text, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, nil)
	want := []string{"201 Created", `"percent"`, "202 Accepted", `"same_args":true`, `"items"`,
		"304 Not Modified",
		`"biz_id":"order-18"`, `"state":"available"`}
	_, rest, _ := strings.Cut(string(text), "    api() {")
	call, _, _ := strings.Cut(rest, "\n")
	blocks := strings.Split(rest, "```sh\n")[1:]
	if len(blocks) != len(want) {
		t.Fatalf("%d examples, want %d", len(blocks), len(want))
	}
	for i, block := range blocks {
		script, _, _ := strings.Cut(block, "```")
		command := exec.CommandContext(t.Context(), "sh", "-euc", "api() {"+call+"\n"+script)
		command.Env = append(os.Environ(), "API="+s.url, "TOKEN="+s.tokens[api.Operator])
		out, err := command.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want[i]) || strings.Contains(string(out), `"cure"`) {
			t.Errorf("%v: %s\n%s\nwants %s", err, script, out, want[i])
		}
	}
}
