package ledgertest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Example is [Pool] for an Example function. It panics where Pool fails the test. Call done at the end of the
// function.
func Example(roles ...string) (pool *pgxpool.Pool, done func()) {
	t, done := ExampleTB()
	return Pool(t, roles...), done
}

// ExampleTB returns a [testing.TB] for an Example function. It panics instead of failing. It supports
// the methods that this package calls. Call done at the end of the function.
func ExampleTB() (t testing.TB, done func()) {
	e := &example{}
	return e, e.done
}

// example implements the methods of testing.TB that this package calls.
type example struct {
	testing.TB // nil
	cleanups   []func()
}

func (*example) Helper()                      {}
func (*example) Failed() bool                 { return false }
func (*example) Context() context.Context     { return context.Background() }
func (*example) Logf(string, ...any)          {}
func (*example) Errorf(text string, a ...any) { panic(fmt.Sprintf(text, a...)) }
func (*example) Fatalf(text string, a ...any) { panic(fmt.Sprintf(text, a...)) }
func (e *example) TempDir() string {
	dir, err := os.MkdirTemp("", "ledgertest-")
	if err != nil {
		panic(err)
	}
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
func (e *example) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *example) done() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}
