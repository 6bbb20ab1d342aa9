package outbox_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// lines is a log in memory.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// releasedTasks makes finished tasks whose message of a release repeats the args.
func (c *client) releasedTasks(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		k := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(id)}
		ledgertest.Enqueue(c.t, c.pool, k, `{"n":"`+id+`"}`)
		ledgertest.Append(c.t, c.pool, k, ledger.EventStarted, ledger.EventBuried, ledger.EventReleased,
			ledger.EventStarted, ledger.EventSucceeded)
	}
}

// wantBodies returns the bodies of all messages of the ledger, by the positions of their events.
func (c *client) wantBodies() map[string]string {
	c.t.Helper()
	want := make(map[string]string)
	for e, err := range ledger.Events(c.t.Context(), c.pool, ledger.Range{}) {
		if err != nil {
			c.t.Fatal(err)
		}
		body := string(e.Data)
		if e.Type == ledger.EventReleased {
			body = `{"n":"` + string(e.BizID) + `"}`
		}
		if e.Kind == "coupon.send" {
			want[strconv.FormatInt(int64(e.Position), 10)] = body
		}
	}
	return want
}

// A served subscriber that begins in the archive publishes archived events among the others, with the args that a
// message repeats: across the death of its process, more runs of the archive, and an archive that is away for a time.
// Erased texts stay erased in an old copy.
func TestServedSubscriberBeginsInTheArchive(t *testing.T) {
	c := newClient(t)
	c.releasedTasks("1", "2", "3", "4", "erased")
	want := c.wantBodies()
	rows, err := c.pool.Query(t.Context(), `select e.position::text from taskledger.event e
		where e.biz_id = 'erased' and e.type in ('enqueued', 'released')`)
	if err != nil {
		t.Fatal(err)
	}
	erased, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	place := t.TempDir() + "/archive"
	archiveFinished(t, c.pool, place)
	ledgertest.ExecAsOwner(t, c.pool, `
		insert into taskledger.erasure (id, kind, biz_id, until, shard, erased_at, actor, reason)
		values (gen_random_uuid(), 'coupon.send', 'erased', 1000, 0, now(), 'alice', 'a test')`)
	c.releasedTasks("5", "6", "7", "8")
	maps.Copy(want, c.wantBodies())
	c.serveAndKill(1)
	archiveFinished(t, c.pool, place)

	if err := os.Rename(place, place+"-away"); err != nil {
		t.Fatal(err)
	}
	c.archive = directories
	log := &lines{}
	c.log = log
	c.serve(4)
	c.await("the log names the archive that is away", func() bool {
		return log.contains("events were archived to " + place + "/volumes/")
	})
	if err := os.Rename(place+"-away", place); err != nil {
		t.Fatal(err)
	}
	c.receive(len(want))
	for _, position := range erased {
		want[position] = ""
	}
	if diff := difference.Of(want, c.bodies); diff != "" {
		t.Error(diff)
	}
}

// Without an archive, a served subscriber goes on without the archived events, and the log names them.
func TestServedSubscriberWithoutTheArchive(t *testing.T) {
	c := newClient(t)
	c.releasedTasks("1")
	archiveFinished(t, c.pool, t.TempDir())
	c.releasedTasks("2")
	want := c.wantBodies()
	log := &lines{}
	c.log = log
	c.serve(50)
	c.receive(len(want))
	if diff := difference.Of(want, c.bodies); diff != "" {
		t.Error(diff)
	}
	if text := "begins without them, as it has no Archive\" subscriber=mails events=6 first="; !log.contains(text) {
		t.Errorf("the log lacks %q: %s", text, log.text.String())
	}
}

// Args of an event that is archived after it was read are read from the archive. Without one, the event is read again,
// since the reader's log and archive_gaps then name it.
func TestArgsOfEventsThatWereArchived(t *testing.T) {
	c := newClient(t)
	c.releasedTasks("1")
	var released []ledger.Event
	for e, err := range ledger.Events(t.Context(), c.pool, ledger.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == ledger.EventReleased {
			released = append(released, e)
		}
	}
	archiveFinished(t, c.pool, t.TempDir())
	bodies, err := outbox.Bodies(t.Context(), c.db, directories, released)
	if err != nil || len(bodies) != 1 || bodies[0] != `{"n":"1"}` {
		t.Errorf("%q, %v", bodies, err)
	}
	if _, err := outbox.Bodies(t.Context(), c.db, nil, released); !errors.As(err, new(*ledger.ArchivedError)) {
		t.Errorf("without the archive: %v", err)
	}
}
