package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// incident is a fault of the shop.
type incident struct {
	fault  func(context.Context, *shop) error
	before func(context.Context, *shop) error // at the beginning of the warm-up; nil: nothing
	// colleague is what others do in answer to the person's acts, once a second; nil: nothing.
	colleague func(context.Context, *shop) error
	// cured is a statement that returns whether the incident is over.
	cured string
}

// incidents are the incidents, by their number less 1.
var incidents = []incident{
	{ // the partner of payments answers 503, until a minute after its kind is paused, or for ten minutes
		fault: func(_ context.Context, s *shop) error { s.isPartnerDown.Store(true); return nil },
		colleague: func(ctx context.Context, s *shop) error {
			return s.answer(ctx, &s.isPartnerDown, "payment.capture", time.Minute, 10*time.Minute,
				"the partner is back")
		},
		cured: `select not exists (select from taskledger.paused_kinds p where p.kind = 'payment.capture')
		           and not exists (select from taskledger.tasks t where t.kind = 'payment.capture'
		                           and (t.state = 'dead' or t.state = 'retrying'))`,
	},
	{ // four attempts of the worker shop-2 hang
		fault: func(_ context.Context, s *shop) error { s.hangs.Store(4); return nil },
		cured: `select not exists (select from taskledger.tasks t where t.state = 'running'
		                           and t.updated_at < now() - interval '1 minute')
		           and not exists (select from taskledger.tasks t where t.kind = 'shipment.label'
		                           and t.state in ('dead', 'cancelled'))`,
	},
	{ // each task of a kind panics, until half a minute after the kind is paused
		fault: func(_ context.Context, s *shop) error { s.isPoisoned.Store(true); return nil },
		colleague: func(ctx context.Context, s *shop) error {
			return s.answer(ctx, &s.isPoisoned, "invoice.render", 30*time.Second, time.Hour,
				"the release is rolled back")
		},
		cured: `select not exists (select from taskledger.paused_kinds p where p.kind = 'invoice.render')
		           and not exists (select from taskledger.tasks t where t.kind = 'invoice.render'
		                           and (t.state = 'dead' or t.state = 'retrying'))`,
	},
	{ // a schedule was paused and forgotten, so that stock levels grow old
		before: func(ctx context.Context, s *shop) error {
			_, err := periodic.Apply(ctx, s.client.DB, []periodic.Schedule{
				{Name: "stock-sync", Kind: "stock.sync", Every: 20 * time.Second},
				{Name: "nightly-report", Kind: "mail.receipt", Cron: "30 2 * * *", Zone: "Europe/Berlin"},
			}, nil)
			if err != nil {
				return err
			}
			return periodic.Pause(ctx, s.client.DB, "stock-sync", "mira", "inventory in warehouse-2, until noon")
		},
		fault: func(_ context.Context, s *shop) error { s.needsSync.Store(true); return nil },
		cured: `select exists (select from taskledger.tasks t where t.kind = 'stock.sync' and t.state = 'succeeded')
		           and not exists (select from taskledger.tasks t where t.kind = 'stock.reserve'
		                           and (t.state = 'dead' or t.state = 'retrying'))`,
	},
	{ // an import enqueues more images than the workers can resize, until tasks of it are cancelled
		fault: func(_ context.Context, s *shop) error { s.imports.Store(true); return nil },
		colleague: func(ctx context.Context, s *shop) error {
			n, err := s.count(ctx, `select count(*) from taskledger.tasks t
			                         where t.kind = 'image.resize' and t.state = 'cancelled'`)
			if err == nil && n > 0 && s.imports.CompareAndSwap(true, false) {
				s.note("colleague: the import is stopped")
			}
			return err
		},
		cured: `select count(*) < 20 from taskledger.tasks t where t.kind = 'image.resize' and t.state = 'available'`,
	},
}

// switchable is a fault that can be mended.
type switchable interface {
	Load() bool
	CompareAndSwap(from, to bool) bool
}

// answer mends a fault when a kind has been paused for some time, or after the longest time of the fault.
func (s *shop) answer(
	ctx context.Context, fault switchable, kind ledger.Kind, after, longest time.Duration, does string,
) error {
	n, err := s.count(ctx, `select count(*) from taskledger.paused_kinds p
	                         where p.kind = $1::text and p.since < now() - $2::bigint * interval '1 second'`,
		string(kind), int64(after/time.Second))
	if err == nil && (n > 0 || time.Since(s.faultAt) > longest) && fault.CompareAndSwap(true, false) {
		s.note("colleague: %s", does)
	}
	return err
}

// count returns the number that a statement selects.
func (s *shop) count(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = s.client.DB.QueryRow(ctx, sql, args...).Scan(&n)
	return n, err
}

// play warms up, makes the fault, prints the link, and watches until ctx is done.
func (s *shop) play(ctx context.Context, i incident, o options, link func() (string, error)) error {
	if i.before != nil {
		if err := i.before(ctx, s); err != nil {
			return err
		}
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "The shop works. The link follows in %s.\n", o.warmUp+o.delay)
	if err := sleep(ctx, o.warmUp); err != nil {
		return err
	}
	if err := i.fault(ctx, s); err != nil {
		return err
	}
	s.faultAt = time.Now()
	s.note("fault")
	if err := sleep(ctx, o.delay); err != nil {
		return err
	}
	address, err := link()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, address)
	s.note("link")
	w := &watch{shop: s, incident: i, begun: time.Now()}
	if err := s.client.DB.QueryRow(ctx, "select coalesce(max(position), 0) from taskledger.event").
		Scan(&w.position); err != nil {
		return err
	}
	for sleep(ctx, time.Second) == nil {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			s.note("error: %v", err)
		}
	}
	fmt.Fprintln(os.Stdout, w)
	return context.Cause(ctx)
}

// watch records the acts of the person.
type watch struct {
	shop     *shop
	incident incident
	begun    time.Time
	position int64
	first    time.Time // the first act
	cured    time.Time // zero: not yet
	acts     int
}

// String returns the times.
func (w *watch) String() string {
	after := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return t.Sub(w.begun).Round(time.Second).String()
	}
	return fmt.Sprintf("first act after %s, %d acts, cured after %s", after(w.first), w.acts, after(w.cured))
}

// act is a group of events of the person.
type act struct {
	about, reason string
	n             int64
}

// look logs new acts, lets colleagues answer, and records the cure.
func (w *watch) look(ctx context.Context) error {
	var top int64
	if err := w.shop.client.DB.QueryRow(ctx, "select coalesce(max(position), 0) from taskledger.event").
		Scan(&top); err != nil {
		return err
	}
	rows, err := w.shop.client.DB.Query(ctx, `
		select e.kind || ' '
		       || case when starts_with(e.kind, 'taskledger.') then left(e.biz_id, 60) else e.type::text end,
		       coalesce(min(e.data::jsonb->>'reason'), ''), count(*)
		  from taskledger.event e
		 where e.position > $1::bigint and e.position <= $2::bigint and e.actor = $3::text
		   and (e.version = 1 or not starts_with(e.kind, 'taskledger.'))
		 group by 1`, w.position, top, person)
	if err != nil {
		return err
	}
	acts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a act, err error) {
		err = row.Scan(&a.about, &a.reason, &a.n)
		return a, err
	})
	if err != nil {
		return err
	}
	w.position = top
	for _, a := range acts {
		if w.acts++; w.first.IsZero() {
			w.first = time.Now()
		}
		w.shop.note("act: %s, %d tasks: %s", a.about, a.n, a.reason)
	}
	if w.incident.colleague != nil {
		if err := w.incident.colleague(ctx, w.shop); err != nil {
			return err
		}
	}
	var isCured bool
	if err := w.shop.client.DB.QueryRow(ctx, w.incident.cured).Scan(&isCured); err != nil {
		return err
	}
	if isCured && w.cured.IsZero() && w.acts > 0 {
		w.cured = time.Now()
		w.shop.note("cured: %s", w)
		fmt.Fprintln(os.Stdout, w)
	}
	return nil
}
