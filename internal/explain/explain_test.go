package explain_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/explain"
	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestMain(m *testing.M) { os.Exit(longtest.Run(m)) }

// The sentence about a task states that another run follows it, until that run is cancelled or begins.
func TestOneMoreRunWaits(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "reader")
	k := ledger.Key{Kind: "customer.resync", BizID: "17"}
	ledgertest.Enqueue(t, pool, k, "1")
	task := ledgertest.Append(t, pool, k, ledger.EventStarted)
	const sentence = "One more run waits behind it"
	for _, follows := range []bool{false, true} {
		if follows {
			o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsFollow}
			if _, err := ledger.Enqueue(t.Context(), pool, k, json.RawMessage("2"), o); err != nil {
				t.Fatal(err)
			}
		}
		why, err := explain.Source{DB: pool}.State(t.Context(), task)
		if err != nil || strings.Contains(why, sentence) != follows {
			t.Errorf("%q, %v; a run follows: %v", why, err, follows)
		}
	}
}

// The sentence about a task in line states its place and the task whose turn it is. Its cost does not grow with the
// line.
func TestPlaceInLine(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	users, keeper := ledgertest.As(t, owner, "producer", "worker", "operator"), ledgertest.As(t, owner, "relay")
	key := func(id int) ledger.Key { return ledger.Key{Kind: "line.step", BizID: ledger.BizID(strconv.Itoa(id))} }
	var entries []ledger.Entry
	for i := range 1500 {
		entries = append(entries, ledger.Entry{Key: key(i), Options: &ledger.EnqueueOptions{OrderKey: "customer/17"}})
	}
	if _, err := ledger.EnqueueMany(t.Context(), users, entries); err != nil {
		t.Fatal(err)
	}
	advance := func() {
		t.Helper()
		if _, err := keeper.Exec(t.Context(), "select taskledger_internal.advance_lines('{customer/17}')"); err != nil {
			t.Fatal(err)
		}
	}
	mustBe := func(id int, want string) {
		t.Helper()
		task, err := ledger.Load(t.Context(), users, key(id))
		if err != nil {
			t.Fatal(err)
		}
		why, err := explain.Source{DB: users}.State(t.Context(), task)
		if err != nil || !regexp.MustCompile("^"+want+"$").MatchString(why) {
			t.Errorf("task %d: %q, %v, want %q", id, why, err, want)
		}
	}
	const unhandled = " That task does not begin because no live worker handles the kind. Start the program .*"
	head := func(want ...string) {
		t.Helper()
		var got []string
		all, err := explain.Source{DB: users}.LineTasks(t.Context(), "customer/17", len(want))
		for _, task := range all {
			got = append(got, string(task.Key.BizID)+" "+string(task.State))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the line begins with %q, %v, want %q", got, err, want)
		}
	}
	mustBe(0, "It is next in line customer/17: .*")
	mustBe(2, `It is third in line customer/17\.`)
	head("0 in_line", "1 in_line", "2 in_line")
	advance()
	mustBe(2, `It is third in line customer/17\. line\.step/0 is first, and has waited \d+m?s for a worker\.`+unhandled)
	head("0 available", "1 in_line", "2 in_line")
	mustBe(12, `It is number 13 in line .*`)
	mustBe(1400, `More than 1,000 tasks stand before it in line customer/17\. line\.step/0 is first, and .*`)
	ledgertest.Append(t, users, key(0), ledger.EventStarted)
	ledgertest.Append(t, users, key(0), ledger.EventBuried)
	mustBe(1, `It is second in line customer/17\. The line stands, because line\.step/0 has been dead for \d+m?s: .*`)
	ledgertest.Append(t, users, key(1), ledger.EventCancelled)
	mustBe(2, `It is second in line customer/17\. The line stands, .*`)
	head("0 dead", "2 in_line")
	ledgertest.Append(t, users, key(0), ledger.EventReleased)
	head("0 in_line", "2 in_line")
	mustBe(0, "It is next in line customer/17: .*")
	mustBe(2, `It is second in line customer/17\. line\.step/0 is first, and in line for \d+m?s\.`)
	advance()
	ledgertest.Append(t, users, key(0), ledger.EventSucceeded)
	advance()
	mustBe(3, `It is second in line customer/17\. line\.step/2 is first, and .*`)
	head("2 available", "3 in_line")
	hidden := explain.Source{DB: users, MayName: func(ledger.Kind) bool { return false }}
	all, err := hidden.LineTasks(t.Context(), "customer/17", 5)
	if err != nil || len(all) != 5 || all[0].Key.Kind != "" {
		t.Errorf("the line begins with %v, %v", all, err)
	}
	line := func(orderKey, want string, s explain.Source) {
		t.Helper()
		s.DB = users
		text, err := s.Line(t.Context(), orderKey)
		if err != nil || !regexp.MustCompile("^"+want+"$").MatchString(text) {
			t.Errorf("line %s: %q, %v, want %q", orderKey, text, err, want)
		}
	}
	const many = `More than 1,000 tasks wait in line customer/17\. `
	line("customer/17", many+`line\.step/2 is first, and .*`, explain.Source{})
	line("customer/18", "", explain.Source{})
	line("customer/17", many+"A task of another kind is first, and .*", hidden)
	o := &ledger.EnqueueOptions{OrderKey: `a"b`}
	if _, err := ledger.Enqueue(t.Context(), users, key(2000), nil, o); err != nil {
		t.Fatal(err)
	}
	line(`a"b`, `1 task waits in line a"b\.`, explain.Source{})
}
