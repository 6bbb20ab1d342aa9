package console_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The page of subscribers shows the lag of the last hour, the rate and the time until all events are passed.
func TestSubscribersMove(t *testing.T) {
	t.Parallel()
	s := serve(t)
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	ledgertest.ExecAsOwner(t, owner, `
		select taskledger.enqueue('coupon.send', 'c-' || i) from generate_series(1, 1000) i;
		alter table taskledger.event disable trigger user;
		update taskledger.event set recorded_at = recorded_at - interval '5 minutes';
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, after_position, origin, recorded_at)
		select 'subscriber/mails', c.n, '3:3:', c.top, '3', c.top, taskledger_internal.origin(), now() - c.ago
		  from (values (1, 0, interval '50 minutes'), (2, 480, interval '1 second')) c (n, top, ago);
		insert into taskledger.moment (at, snapshot, top, bound)
		select now() - m * interval '1 minute', pg_current_snapshot(), 1000, pg_current_xact_id()
		  from generate_series(4, 40) m`)
	b := s.as(api.Viewer)
	b.want(b.get("/subscribers"), http.StatusOK, "mails", "at most 1,000 events behind in the last hour", "2.0/s",
		"in 4 min")
}

// A subscriber that is a few events or seconds behind keeps up. The worst comes first, with who paused it.
func TestSubscribersInTrouble(t *testing.T) {
	t.Parallel()
	s := serve(t)
	operator := ledgertest.As(t, s.db, "operator")
	for _, id := range []string{"coupon.send/1", "coupon.send/2"} {
		ledgertest.Enqueue(t, s.db, ledgertest.Key(t, id), `{}`)
	}
	seek := func(name string, to feed.Start) {
		t.Helper()
		if err := subscribers.Seek(t.Context(), operator, name, to, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	seek("b-paused", feed.After(0))
	seek("c-again", feed.After(0))
	pause := func(name string, isPaused bool, actor, reason string) {
		t.Helper()
		if err := subscribers.Pause(t.Context(), operator, name, isPaused, actor, reason); err != nil {
			t.Fatal(err)
		}
	}
	pause("b-paused", true, "bob", "an earlier one")
	pause("b-paused", false, "bob", "")
	pause("b-paused", true, "ada", "the <scanner> is replaced")
	pause("c-again", true, "bob", "")
	pause("c-again", false, "bob", "")
	seek("a-near", feed.Now())
	seek("c-again", feed.Now())
	p := s.as(api.Viewer).get("/subscribers")
	const paused = `<span class="state retrying">paused</span> by ada <time`
	s.as(api.Viewer).want(p, http.StatusOK, paused, ": the &lt;scanner&gt; is replaced", "once resumed",
		`data-label="catches up">keeps up<`, `<span class="state succeeded">follows</span>`)
	if strings.Count(p.body, "keeps up<") != 2 || strings.Contains(p.body, "by bob") {
		t.Errorf("the page is about another pause:\n%s", p.content())
	}
	if strings.Index(p.body, `data-key="b-paused"`) > strings.Index(p.body, `data-key="a-near"`) {
		t.Errorf("the paused subscriber is not first:\n%s", p.content())
	}
}

// A paused subscriber that is far behind is resumed where the overview names it.
func TestPausedSubscriberOnTheOverview(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-1"), `{}`)
	operator := ledgertest.As(t, s.db, "operator")
	err := subscribers.Seek(t.Context(), operator, "mails", feed.After(0), "", "")
	if err == nil {
		err = subscribers.Pause(t.Context(), operator, "mails", true, "bob", "the <mailer> is down")
	}
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.ExecAsOwner(t, s.db, `
		alter table taskledger.event disable trigger user;
		update taskledger.event set recorded_at = now() - interval '2 hours'`)
	b := s.as(api.Viewer)
	p := b.get("/")
	b.want(p, http.StatusOK, `<span class="level warning">warning</span> Subscriber mails is 2h behind and is paused`,
		">Paused by bob <time", "</time>: the &lt;mailer&gt; is down</p>")
	if strings.Contains(p.body, "Resume…") || strings.Contains(p.body, "resume it") {
		t.Errorf("a viewer is offered to resume:\n%s", p.content())
	}
	admin := s.as(api.Admin)
	p = admin.get("/")
	admin.want(p, http.StatusOK, `data-key="condition subscriber_behind mails"`, "Resume…", `action="/subscriber"`,
		`<div class="acts calm">`)
	if n := strings.Count(p.body, "the &lt;mailer&gt; is down"); n != 2 || strings.Contains(p.body, `class="main"`) {
		t.Errorf("the reason is %d times on the page, want also in the form, which urges nothing:\n%s", n, p.content())
	}
	form := url.Values{"csrf": {token(t, p)}, "name": {"mails"}, "reason": {"it is up"}, "act": {"resume"},
		"to": {"overview"}}
	admin.want(admin.post("/subscriber", form), http.StatusOK, "<h1>Overview</h1>", "mails is resumed.")
}

// A subscriber is paused, resumed and moved by an admin of all kinds, each with a record of the reason.
func TestSubscribersAreChanged(t *testing.T) {
	t.Parallel()
	s := serve(t)
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-1"), `{}`)
	operator := ledgertest.As(t, s.db, "operator")
	err := subscribers.Seek(t.Context(), operator, "mails", feed.After(0), "", "")
	if err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Admin)
	p := b.get("/subscribers")
	b.want(p, http.StatusOK, "mails", "Pause…", "Seek…")
	form := url.Values{"csrf": {token(t, p)}, "name": {"mails"}, "reason": {"the mailer is down"}, "act": {"pause"}}
	b.want(b.post("/subscriber", form), http.StatusOK, "mails is paused.", "Resume…")
	form.Set("act", "resume")
	b.want(b.post("/subscriber", form), http.StatusOK, "mails is resumed.", "Pause…")
	form.Set("act", "seek")
	form.Set("to", "now")
	b.want(b.post("/subscriber", form), http.StatusOK, "mails continues at now.", `"behind">2</td>`)
	var records []string
	rows, err := owner.Query(t.Context(), `
		select concat_ws(' ', actor, data->>'action', data->>'reason')
		  from taskledger.event where kind = 'taskledger.operation' and version = 1 order by position offset 1`)
	if err == nil {
		records, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	want := []string{"ada-admin subscriber.pause the mailer is down", "ada-admin subscriber.resume the mailer is down",
		"ada-admin subscriber.seek the mailer is down"}
	if err != nil || !slices.Equal(records, want) {
		t.Errorf("on record: %q, %v, want %q", records, err, want)
	}
	form.Set("to", "tomorrow")
	b.want(b.post("/subscriber", form), http.StatusBadRequest, "the place must be now, beginning, a position or a time")
	form.Set("to", "2999-01-01T00:00:00Z")
	b.want(b.post("/subscriber", form), http.StatusBadRequest, "must not be in the future")
	form.Set("to", "now")
	form.Set("name", "unknown")
	b.want(b.post("/subscriber", form), http.StatusNotFound, "there is no such subscriber")
	form.Set("name", "mails")
	for _, other := range []*browser{s.as(api.Operator), s.as(api.Admin, "coupon.*")} {
		form.Set("csrf", token(t, other.get("/")))
		other.want(other.post("/subscriber", form), http.StatusForbidden)
	}
}
