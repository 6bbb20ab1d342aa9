package webhooks

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/post"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

var (
	//go:embed sql/installation.sql
	installationSQL string
	//go:embed sql/others.sql
	othersSQL string
	//go:embed sql/pause.sql
	pauseSQL string
	//go:embed sql/previous.sql
	previousSQL string
	//go:embed sql/newest_delivery.sql
	newestDeliverySQL string
)

// enqueue enqueues a delivery for each event, in the transaction in which the place of the subscriber is kept. With
// [OrderTask] each delivery of a task's events begins after the previous one.
func (d *deliverer) enqueue(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	ctx = reserved.Allow(ctx)
	if d.Order != OrderTask {
		_, err := d.enqueueEach(ctx, tx, events, nil)
		return err
	}
	last, err := d.previous(ctx, tx, events)
	for len(events) > 0 && err == nil {
		var first, rest []ledger.Event // the first events of their tasks, and later ones
		seen := map[ledger.Key]bool{}
		for _, e := range events {
			if seen[e.Key] {
				rest = append(rest, e)
			} else {
				first, seen[e.Key] = append(first, e), true
			}
		}
		var ids []ledger.BizID
		ids, err = d.enqueueEach(ctx, tx, first, last)
		for i, id := range ids {
			last[first[i].Key] = id
		}
		events = rest
	}
	return err
}

// previous returns, by task, the biz_id of the newest delivery of the event before the task's first event in events. A
// task without such a delivery is missing.
func (d *deliverer) previous(
	ctx context.Context, tx pgx.Tx, events []ledger.Event,
) (map[ledger.Key]ledger.BizID, error) {
	var first []ledger.Event // of their tasks
	var kinds, ids, versions, types []string
	seen := map[ledger.Key]bool{}
	for _, e := range events {
		if seen[e.Key] {
			continue
		}
		seen[e.Key] = true
		first = append(first, e)
		kinds, ids = append(kinds, string(e.Kind)), append(ids, string(e.BizID))
		versions = append(versions, strconv.FormatInt(int64(e.Version), 10))
	}
	for _, t := range d.Types {
		types = append(types, string(t))
	}
	rows, err := tx.Query(ctx, previousSQL, string(d.kind.Name()), pgarray.Of(kinds...), pgarray.Of(ids...),
		pgarray.Of(versions...), pgarray.Of(types...))
	if err != nil {
		return nil, pgerr.Explain("read previous deliveries", err)
	}
	previous := map[ledger.Key]ledger.BizID{}
	var i int64
	var id string
	_, err = pgx.ForEachRow(rows, []any{&i, &id}, func() error {
		previous[first[i-1].Key] = ledger.BizID(id)
		return nil
	})
	if err != nil {
		return nil, pgerr.Explain("read previous deliveries", err)
	}
	return previous, d.addArchived(ctx, tx, first, previous)
}

// addArchived adds the previous deliveries of archived tasks, whose earlier events are in files.
func (d *deliverer) addArchived(
	ctx context.Context, tx pgx.Tx, events []ledger.Event, previous map[ledger.Key]ledger.BizID,
) error {
	if d.service.config.Archive == nil {
		return nil
	}
	var later []ledger.Event
	var keys []ledger.Key
	for _, e := range events {
		if _, ok := previous[e.Key]; !ok && e.Version > 1 {
			later, keys = append(later, e), append(keys, e.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	known, err := ledger.Archived(ctx, tx, keys...)
	if err != nil {
		return err
	}
	for i, e := range later {
		if known[i] == nil {
			continue
		}
		history, err := d.service.config.Archive.History(ctx, tx, e)
		if err != nil {
			return err
		}
		var ids []string // the newest first
		for _, earlier := range slices.Backward(history) {
			if earlier.Position < e.Position && d.wants(earlier) && len(ids) < maxPrevious {
				ids = append(ids, strconv.FormatInt(int64(earlier.Position), 10))
			}
		}
		var id string
		found, err := pgquery.Row(ctx, tx, newestDeliverySQL, []any{string(d.kind.Name()), pgarray.Of(ids...)}, &id)
		if err != nil {
			return pgerr.Explain("read previous deliveries", err)
		}
		if found {
			previous[e.Key] = ledger.BizID(id)
		}
	}
	return nil
}

// enqueueEach enqueues a delivery for each event, and returns their biz_ids. after contains the preceding delivery by
// task, as in entries. It enqueues a further delivery if one exists that has finished, because the subscriber was moved
// back. It also does so if the position had another event, or another login has enqueued a task with this key.
func (d *deliverer) enqueueEach(
	ctx context.Context, tx pgx.Tx, events []ledger.Event, after map[ledger.Key]ledger.BizID,
) ([]ledger.BizID, error) {
	entries, err := d.entries(events, "", after)
	if err != nil {
		return nil, err
	}
	results, err := ledger.EnqueueMany(ctx, tx, entries)
	if err != nil {
		return nil, err
	}
	others, err := d.others(ctx, tx, results)
	if err != nil {
		return nil, err
	}
	ids := make([]ledger.BizID, len(events))
	var again []ledger.Event
	var places []int
	for i, r := range results {
		ids[i] = r.Key.BizID
		if !r.New && (r.State.Finished() || !r.SameArgs || others[r.Key.BizID]) {
			again, places = append(again, events[i]), append(places, i)
		}
	}
	if len(again) == 0 {
		return ids, nil
	}
	entries, err = d.entries(again, "-again-"+strconv.FormatInt(time.Now().UnixMicro(), 10), after)
	if err != nil {
		return nil, err
	}
	for i, entry := range entries {
		ids[places[i]] = entry.Key.BizID
	}
	_, err = ledger.EnqueueMany(ctx, tx, entries)
	return ids, err
}

// others returns the tasks among existing ones that another login has enqueued.
func (d *deliverer) others(ctx context.Context, tx pgx.Tx, results []ledger.Enqueued) (map[ledger.BizID]bool, error) {
	var existing []string
	for _, r := range results {
		if !r.New {
			existing = append(existing, string(r.Key.BizID))
		}
	}
	if len(existing) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, othersSQL, string(d.kind.Name()), pgarray.Of(existing...))
	if err != nil {
		return nil, pgerr.Explain("read deliveries", err)
	}
	others := map[ledger.BizID]bool{}
	var id string
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		others[ledger.BizID(id)] = true
		return nil
	})
	return others, pgerr.Explain("read deliveries", err)
}

// entries returns the deliveries of events. A biz_id is the event's position and a suffix. Each delivery begins when
// the delivery in after for its task has finished.
func (d *deliverer) entries(
	events []ledger.Event, suffix string, after map[ledger.Key]ledger.BizID,
) (entries []ledger.Entry, err error) {
	for _, e := range events {
		id := ledger.BizID(strconv.FormatInt(int64(e.Position), 10) + suffix)
		args := delivery{Kind: e.Kind, BizID: e.BizID, Version: e.Version, Position: e.Position}
		o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore, CheckArchive: true}
		if previous, ok := after[e.Key]; ok {
			o.After, o.Otherwise = []ledger.Key{d.kind.Key(previous)}, ledger.OtherwiseRun
		}
		entry, err := d.kind.Entry(id, args, o)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// deliver sends the event of a delivery.
func (d *deliverer) deliver(ctx context.Context, job *workers.Job, of delivery) error {
	e, err := d.event(ctx, of)
	if err != nil {
		return err
	}
	installation, err := d.installation(ctx)
	if err != nil {
		return err
	}
	// The time is part of the id, because a restored database gives the positions of lost events to new events.
	id := fmt.Sprintf("evt_%s_%d_%d", installation, e.Position, e.RecordedAt.UnixMicro())
	err = d.sender.send(ctx, Message{
		ID: id, Type: string(e.Kind) + "." + string(e.Type), At: e.RecordedAt, Data: dataOf(e),
	})
	var status *post.StatusError
	switch {
	case errors.As(err, &status) && status.Status == http.StatusGone:
		return d.pause(ctx, err)
	case errors.As(err, &status) && status.RetryAfter > 0:
		return d.retryAfter(ctx, job, status)
	}
	return err
}

// maxPrevious is how many earlier events of a task are searched for a delivery, as in previous.sql.
const maxPrevious = 100

// noticed is more than the time after which all workers have noticed a pause.
const noticed = 2 * time.Second

// pause pauses the deliveries of the receiver, which has answered 410 Gone, until an operator resumes their kind. It
// returns the error of the delivery, which is not retried before. The attempt keeps its slot until the pause is
// noticed, so that no other delivery begins.
func (d *deliverer) pause(ctx context.Context, gone error) error {
	isNew := false
	if _, err := pgquery.Row(ctx, d.service.config.DB, pauseSQL, []any{d.Name}, &isNew); err != nil {
		return errors.Join(gone, pgerr.Explain("pause the receiver "+d.Name, err))
	}
	if isNew {
		err := fmt.Errorf("%w; when it answers again: taskledger resume kind %s", gone, d.kind.Name())
		d.service.config.Logger.ErrorContext(ctx, "a receiver is paused; its deliveries wait",
			"receiver", d.Name, "error", err)
	}
	_ = loop.Sleep(ctx, noticed) // an error means that the attempt ends
	return gone
}

// retryAfter returns the error of a delivery whose receiver asks for a retry after a time. The delay of the policy is
// not shortened: an overloaded receiver that answers with a second would use up all attempts in some seconds.
func (d *deliverer) retryAfter(ctx context.Context, job *workers.Job, status *post.StatusError) error {
	previous, err := job.PreviousErrors(ctx)
	if err != nil || d.Retry.Delay(len(previous)+1, 0) >= status.RetryAfter {
		return status
	}
	return workers.RetryIn(status.RetryAfter, status)
}

// event returns the event of a delivery, from the ledger or from the archive.
func (d *deliverer) event(ctx context.Context, of delivery) (ledger.Event, error) {
	isOf := func(e ledger.Event) bool {
		return e.Kind == of.Kind && e.BizID == of.BizID && e.Version == of.Version && e.Position == of.Position
	}
	for e, err := range ledger.Read(ctx, d.service.config.DB, of.Position-1, 1) {
		switch {
		case err != nil:
			return e, err
		case isOf(e):
			return d.wanted(e)
		}
	}
	history, err := d.archived(ctx, of)
	if err != nil {
		return ledger.Event{}, err
	}
	for _, e := range history {
		if isOf(e) {
			return d.wanted(e)
		}
	}
	return ledger.Event{}, workers.Permanent(fmt.Errorf("the ledger contains no event %s/%s/%d at position %d", of.Kind,
		of.BizID, of.Version, of.Position))
}

// archived returns the events of the task of a delivery from the archive. An [*ledger.ArchivedError] is permanent: the
// events are in no file, or the service was given no archive.
func (d *deliverer) archived(ctx context.Context, of delivery) (history []ledger.Event, err error) {
	key := ledger.Key{Kind: of.Kind, BizID: of.BizID}
	if from := d.service.config.Archive; from != nil {
		history, err = from.History(ctx, d.service.config.DB, ledger.Event{Key: key, Position: of.Position})
	} else {
		var known []*ledger.ArchivedError
		known, err = ledger.Archived(ctx, d.service.config.DB, key)
		if err == nil && known[0] != nil && of.Version <= known[0].Version {
			err = fmt.Errorf("the service was given no archive: %w", known[0])
		}
	}
	if errors.As(err, new(*ledger.ArchivedError)) {
		err = workers.Permanent(err)
	}
	return history, err
}

// wanted returns an event, unless the receiver does not want it.
func (d *deliverer) wanted(e ledger.Event) (ledger.Event, error) {
	if !d.wants(e) {
		return e, workers.Discard("the receiver does not want events of this kind and type any more")
	}
	return e, nil
}

// data is the data of a message about an event.
type data struct {
	Position ledger.Position  `json:"position"`
	Kind     ledger.Kind      `json:"kind"`
	BizID    ledger.BizID     `json:"biz_id"`
	Version  ledger.Version   `json:"version"`
	Type     ledger.EventType `json:"type"`
	Attempt  ledger.Attempt   `json:"attempt"`
	Data     json.RawMessage  `json:"data,omitempty"`        // of the event: args, result, error
	Base64   string           `json:"data_base64,omitempty"` // instead, if it is not JSON
}

func dataOf(e ledger.Event) data {
	d := data{
		Position: e.Position, Kind: e.Kind, BizID: e.BizID, Version: e.Version, Type: e.Type, Attempt: e.Attempt,
	}
	switch payload, err := e.Payload(); {
	case err != nil: // as it is stored
		d.Data = e.Data
	case json.Valid(payload):
		d.Data = payload
	case len(payload) > 0:
		d.Base64 = base64.StdEncoding.EncodeToString(payload)
	}
	return d
}

// installation returns the id of the ledger.
func (d *deliverer) installation(ctx context.Context) (id string, err error) {
	if id := d.service.source.Load(); id != nil {
		return *id, nil
	}
	if _, err = pgquery.Row(ctx, d.service.config.DB, installationSQL, nil, &id); err == nil {
		d.service.source.Store(&id)
	}
	return id, pgerr.Explain("read the installation", err)
}
