package pgserver_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/pgserver"
)

func TestStandbyFollowsAndIsPromoted(t *testing.T) {
	t.Parallel()
	primary := start(t, pgserver.Config{})
	exec(t, primary, makeNotes)
	standby, err := primary.Standby(within(t))
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err) // binaries without client tools
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	follows := func(want string) {
		t.Helper()
		await(t, "the standby has "+want, func() bool { return query(t, standby, readNotes) == want })
	}
	exec(t, primary, fmt.Sprintf(addNote, "streamed"))
	follows("streamed")
	if got := query(t, standby, "select pg_is_in_recovery()::text"); got != "true" {
		t.Fatalf("in recovery: %s", got)
	}

	if err := primary.Restart(within(t)); err != nil {
		t.Fatal(err)
	}
	exec(t, primary, fmt.Sprintf(addNote, "restarted"))
	follows("streamed restarted")

	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(within(t)); err != nil {
		t.Fatal(err)
	}
	exec(t, standby, fmt.Sprintf(addNote, "promoted"))
	follows("streamed restarted promoted")
}
