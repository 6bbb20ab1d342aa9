package demo_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/taskledger/taskledger/cmd/taskledger/internal/demo"
)

// roleVariable turns the test binary into a child process of the demo.
const roleVariable = "TASKLEDGER_DEMO_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "" {
		os.Exit(m.Run())
	}
	arguments := os.Args[len(os.Args)-2:]
	if err := demo.RunChild(context.Background(), arguments[0], arguments[1], os.Stdin, os.Stdout,
		os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The demo proves itself with all troubles: real processes that are killed at their crash points, a
// zombie, and a JetStream that loses its store. The script demo.txtar runs it without trouble.
func TestDemo(t *testing.T) {
	t.Setenv(roleVariable, "1")
	r, err := demo.Run(t.Context(), demo.Config{
		Orders: 600, Chaos: true, Child: []string{os.Args[0]}, View: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range r.Failures {
		t.Error(failure)
	}
	t.Logf("%+v", r)
}
