package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// order is the args of most tasks.
type order struct {
	Order string `json:"order"`
	Cents int    `json:"cents,omitempty"`
}

// The kinds of the shop.
var (
	capture   = ledger.MustKind[order]("payment.capture")
	receipt   = ledger.MustKind[order]("mail.receipt")
	invoice   = ledger.MustKind[order]("invoice.render")
	label     = ledger.MustKind[order]("shipment.label")
	reserve   = ledger.MustKind[order]("stock.reserve")
	stockSync = ledger.MustKind[order]("stock.sync")
	resize    = ledger.MustKind[order]("image.resize")
)

// shop takes orders, and has three workers. The switches are set by incidents.
type shop struct {
	client  *taskledger.Client   // of the checkout
	workers []*taskledger.Client // one for each name
	log     io.Writer
	partner *httptest.Server

	isPartnerDown, isPoisoned, needsSync, imports atomic.Bool

	hangs    atomic.Int32 // how many attempts of shop-2 still hang
	syncedAt atomic.Int64 // Unix time

	faultAt time.Time // set before the link is printed
	work    sync.WaitGroup
}

// workerNames are the names of the workers.
var workerNames = []string{"shop-1", "shop-2", "shop-3"}

func newShop(ctx context.Context, address embedded.Announcement, log io.Writer) (*shop, error) {
	s := &shop{log: log}
	open := func(name string) (*taskledger.Client, error) {
		return taskledger.Open(ctx, taskledger.Options{DatabaseURL: address.DatabaseURL, NATSURL: address.NATSURL,
			Name: name, Logger: slog.New(slog.DiscardHandler), Worker: workers.Config{Name: name}})
	}
	var err error
	if s.client, err = open("checkout"); err != nil {
		return nil, err
	}
	for _, name := range workerNames {
		client, err := open(name)
		if err != nil {
			s.client.Close()
			return nil, err
		}
		s.workers = append(s.workers, client)
	}
	s.partner = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s.isPartnerDown.Load() {
			http.Error(w, "upstream is unavailable", http.StatusServiceUnavailable)
		}
	}))
	return s, nil
}

// note writes a line of the log.
func (s *shop) note(format string, args ...any) {
	fmt.Fprintf(s.log, "%s %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
}

// close waits until the workers have ended, and disconnects.
func (s *shop) close() {
	s.work.Wait()
	for _, c := range append(s.workers, s.client) {
		c.Close()
	}
	s.partner.Close()
}

// pay captures a payment at the partner.
func (s *shop) pay(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.partner.URL+"/v1/captures", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		return fmt.Errorf("POST https://api.paywell.example/v1/captures: %s: %.80s", answer.Status,
			strings.TrimSpace(string(text)))
	}
	return err
}

// registrations are the kinds of a worker with their handlers.
func (s *shop) registrations(worker string) []workers.Registration {
	config := func(slots int) *workers.KindConfig {
		return &workers.KindConfig{Slots: slots,
			Retry: ledger.RetryPolicy{Ladder: []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second}}}
	}
	type handler = func(context.Context, *workers.Job, order) error
	takes := func(d time.Duration, do func(context.Context) error) handler {
		return func(ctx context.Context, _ *workers.Job, _ order) error {
			if err := sleep(ctx, d/2+rand.N(d)); err != nil || do == nil { //nolint:gosec // not a secret
				return err
			}
			return do(ctx)
		}
	}
	return []workers.Registration{
		workers.Handle(capture, takes(60*time.Millisecond, s.pay), config(8)),
		workers.Handle(receipt, takes(40*time.Millisecond, nil), config(8)),
		workers.Handle(invoice, takes(120*time.Millisecond, func(context.Context) error {
			if s.isPoisoned.Load() {
				panic("assignment to entry in nil map")
			}
			return nil
		}), config(4)),
		workers.Handle(label, func(ctx context.Context, _ *workers.Job, _ order) error {
			if worker == "shop-2" && s.hangs.Add(-1) >= 0 {
				<-ctx.Done() // a connection without a timeout
				return context.Cause(ctx)
			}
			return sleep(ctx, 80*time.Millisecond)
		}, config(4)),
		workers.Handle(reserve, takes(10*time.Millisecond, func(context.Context) error {
			isOld := time.Since(time.Unix(s.syncedAt.Load(), 0)) > time.Minute
			if s.needsSync.Load() && isOld && rand.N(3) > 0 { //nolint:gosec // not a secret
				return errors.New("the stock levels of warehouse-2 are out of date")
			}
			return nil
		}), config(8)),
		workers.Handle(stockSync, takes(300*time.Millisecond, func(context.Context) error {
			s.syncedAt.Store(time.Now().Unix())
			return nil
		}), config(1)),
		workers.Handle(resize, takes(time.Second, nil), config(3)),
	}
}

// start starts the workers and the checkout.
func (s *shop) start(ctx context.Context) error {
	for i, client := range s.workers {
		worker, err := client.Worker(s.registrations(workerNames[i])...)
		if err != nil {
			return err
		}
		s.work.Go(func() { _ = worker.Run(ctx) })
	}
	s.work.Go(func() { s.sell(ctx) })
	s.work.Go(func() { s.importImages(ctx) })
	return nil
}

// sell takes four orders a second.
func (s *shop) sell(ctx context.Context) {
	for n := 10_400; sleep(ctx, 250*time.Millisecond) == nil; n++ {
		id := ledger.BizID(fmt.Sprintf("order-%d", n))
		args := order{string(id), 900 + rand.N(20_000)} //nolint:gosec // not a secret
		err := pgx.BeginFunc(ctx, s.client.DB, func(tx pgx.Tx) error {
			options := &ledger.EnqueueOptions{Actor: "checkout"}
			for _, k := range []ledger.TypedKind[order]{capture, reserve, receipt, invoice, label} {
				if _, err := k.Enqueue(ctx, tx, id, args, options); err != nil {
					return err
				}
			}
			if n%3 > 0 {
				return nil
			}
			_, err := resize.Enqueue(ctx, tx, ledger.BizID(fmt.Sprintf("upload-%d", n)), args, options)
			return err
		})
		if err != nil && ctx.Err() == nil {
			s.note("error: an order is lost: %v", err)
		}
	}
}

// importImages enqueues 40 tasks a second while an import is on.
func (s *shop) importImages(ctx context.Context) {
	for n := 1; sleep(ctx, 25*time.Millisecond) == nil; {
		if !s.imports.Load() {
			continue
		}
		id := ledger.BizID(fmt.Sprintf("import-77/sku-%05d", n))
		_, err := resize.Enqueue(ctx, s.client.DB, id, order{Order: string(id)},
			&ledger.EnqueueOptions{Actor: "catalogue-import"})
		if err != nil && ctx.Err() == nil {
			s.note("error: an image is lost: %v", err)
		}
		n++
	}
}
