package outbox_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/replay"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A replay publishes archived events among the others as it did before, with the args that a message repeats.
func TestReplayOfArchivedEvents(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for _, id := range []string{"1", "2"} {
		k := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(id)}
		ledgertest.Enqueue(t, b.pool, k, `{"n":`+id+`}`)
		ledgertest.Append(t, b.pool, k, ledger.EventStarted, ledger.EventBuried, ledger.EventReleased)
	}
	ledgertest.Append(t, b.pool, ledger.Key{Kind: "coupon.send", BizID: "1"}, ledger.EventStarted,
		ledger.EventSucceeded)
	var last int64
	if err := b.pool.QueryRow(t.Context(), `select max(position) from taskledger.event`).Scan(&last); err != nil {
		t.Fatal(err)
	}
	to, err := ledger.MomentOf(t.Context(), b.pool, ledger.Position(last))
	if err != nil {
		t.Fatal(err)
	}
	place := t.TempDir()
	type message struct {
		Header nats.Header
		Data   string
	}
	replayTo := func(name string) (all []message) {
		s := b.makeStream(name, name+".x")
		c := replay.Config{DB: b.pool, JetStream: b.js, Subject: name + ".x", Rate: 100_000, Archive: directories}
		c.Range.To = to
		directories.AddTo(&c.Range)
		if done, err := replay.Run(b.ctx(), c); err != nil || done.Events != 10 {
			t.Fatalf("%+v, %v", done, err)
		}
		for seq := uint64(1); seq <= 10; seq++ {
			m, err := s.GetMsg(b.ctx(), seq)
			if err != nil {
				t.Fatal(err)
			}
			m.Header.Del(replay.Header)
			m.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
			all = append(all, message{m.Header, string(m.Data)})
		}
		return all
	}
	want := replayTo("before")
	archiveFinished(t, b.pool, place)
	if diff := difference.Of(want, replayTo("after")); diff != "" {
		t.Error(diff)
	}
}
