package sealer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
)

// RefusedError means that the ledger does not contain the tree of a checkpoint that was published, so that nothing more
// is published.
type RefusedError struct {
	Where  string          // the directory or the file of that checkpoint
	Kept   seal.Checkpoint // that checkpoint
	Reason error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("nothing is published, because the ledger does not contain the checkpoint of %d leaves in "+
		"%s: %s; if the database was restored from an older backup, keep the directory and the file, and publish a "+
		"new log: taskledger seal --make-key FILE --name NAME, another directory and another file", e.Kept.Size,
		e.Where, e.Reason)
}

func (e *RefusedError) Unwrap() error { return e.Reason }

// MessageType is the type of the messages that webhooks get.
const MessageType = "taskledger.checkpoint"

// Message is the data of a webhook.
type Message struct {
	seal.Checkpoint

	Signed string `json:"signed"` // the checkpoint with all signatures
}

// target is a receiver of checkpoints.
type target struct {
	name string
	// newest returns the checkpoint that the target contains. nil: it cannot be read back.
	newest func(context.Context) (seal.Checkpoint, bool, error)
	// tiles writes the tiles of the ledger's tree before its checkpoint is signed. nil: the target takes no tiles.
	tiles func(context.Context, seal.Checkpoint) error
	write func(ctx context.Context, c seal.Checkpoint, signed []byte) error
	// isState is set for a target that contains the newest checkpoint only: it gets new cosignatures of the same tree.
	isState bool

	last seal.Checkpoint // written last
}

// publisher signs and publishes checkpoints. It is for one goroutine.
type publisher struct {
	db        ledger.DB
	archive   seal.Archive
	file      File
	signer    *seal.Signer
	policy    seal.Policy
	witnesses []*witness
	targets   []*target

	cosignedAt time.Time
}

// newPublisher returns a publisher, without targets if the file has no key.
func newPublisher(c Config) (*publisher, error) {
	p := &publisher{db: c.DB, archive: seal.Archive{Open: c.Open}, file: c.File}
	if !c.File.hasKey() {
		return p, nil
	}
	var err error
	if p.signer, err = c.File.signer(); err != nil {
		return nil, err
	}
	if p.policy, err = c.File.policy(); err != nil {
		return nil, err
	}
	for _, w := range c.File.Witnesses {
		p.witnesses = append(p.witnesses, newWitness(w, p.archive))
	}
	if c.File.Directory != "" {
		t, err := newDirectory(c)
		if err != nil {
			return nil, err
		}
		p.targets = append(p.targets, t)
	}
	if path := c.File.Path; path != "" {
		p.targets = append(p.targets, &target{name: path,
			newest: func(context.Context) (seal.Checkpoint, bool, error) { return lastOf(path) },
			write:  func(_ context.Context, _ seal.Checkpoint, signed []byte) error { return appendTo(path, signed) }})
	}
	if subject := c.File.Subject; subject != "" {
		p.targets = append(p.targets, &target{name: subject,
			write: func(ctx context.Context, _ seal.Checkpoint, signed []byte) error {
				return c.Publish(ctx, subject, signed)
			}})
	}
	for i, endpoint := range c.File.Webhooks {
		p.targets = append(p.targets, &target{name: fmt.Sprintf("webhooks[%d]", i),
			write: func(ctx context.Context, c seal.Checkpoint, signed []byte) error {
				return endpoint.Send(ctx, webhooks.Message{
					ID: fmt.Sprintf("checkpoint_%d_%x", c.Size, c.Root[:8]), Type: MessageType, At: time.Now(),
					Data: Message{c, string(signed)},
				})
			}})
	}
	return p, nil
}

// newDirectory returns the target for the directory of a file, which may be in an object store.
func newDirectory(c Config) (*target, error) {
	t, a := &target{name: c.File.Directory, isState: true}, seal.Archive{Open: c.Open}
	if !c.File.isRemote() {
		d := seal.Directory(c.File.Directory)
		t.newest = func(context.Context) (seal.Checkpoint, bool, error) { return d.Checkpoint() }
		t.tiles = func(ctx context.Context, tree seal.Checkpoint) error { return d.WriteTiles(ctx, c.DB, a, tree) }
		t.write = func(_ context.Context, tree seal.Checkpoint, signed []byte) error {
			return d.WriteCheckpoint(tree, signed)
		}
		return t, nil
	}
	objects, err := c.Open(c.File.Directory)
	if err != nil {
		return nil, err
	}
	d := seal.Published{Objects: objects}
	t.newest, t.write = d.Checkpoint, d.WriteCheckpoint
	t.tiles = func(ctx context.Context, tree seal.Checkpoint) error { return d.WriteTiles(ctx, c.DB, a, tree) }
	return t, nil
}

// recosignEvery is the time after which the newest checkpoint is cosigned again.
const recosignEvery = time.Minute

// publish publishes the newest checkpoint to the targets that lack it.
func (p *publisher) publish(ctx context.Context) error {
	if len(p.targets) == 0 {
		return nil
	}
	c, err := seal.Newest(ctx, p.db)
	if err != nil || c.Size == 0 {
		return err
	}
	if len(p.due(c)) == 0 {
		return nil
	}
	if isAhead, err := p.checkTargets(ctx, c); err != nil || isAhead {
		return err
	}
	due := p.due(c) // a target may have it from an earlier process
	if len(due) == 0 {
		return nil
	}
	for _, t := range p.targets {
		if t.tiles == nil {
			continue
		}
		if err := t.tiles(ctx, c); err != nil {
			return fmt.Errorf("publish to %s: %w", t.name, err)
		}
	}
	fault.Point(fault.SealTiles)
	signed, err := p.signer.Sign(c)
	if err != nil {
		return err
	}
	signed, missing := cosignAll(ctx, p.db, p.witnesses, p.policy.Key, c, signed)
	verified, err := p.policy.Open(signed)
	if err != nil {
		return errors.Join(err, missing)
	}
	p.cosignedAt = time.Now()
	faults := []error{missing}
	for _, t := range due {
		if err := t.write(ctx, verified.Checkpoint, signed); err != nil {
			faults = append(faults, fmt.Errorf("publish to %s: %w", t.name, err))
			continue
		}
		t.last = verified.Checkpoint
		fault.Point(fault.SealPublished)
	}
	return errors.Join(faults...)
}

// due returns the targets that lack a checkpoint, or its newest cosignatures.
func (p *publisher) due(c seal.Checkpoint) (due []*target) {
	isOld := len(p.witnesses) > 0 && time.Since(p.cosignedAt) > recosignEvery
	for _, t := range p.targets {
		if !sameTree(t.last, c) || t.isState && isOld {
			due = append(due, t)
		}
	}
	return due
}

// sameTree reports whether two checkpoints are of one tree, whatever the name of the log is.
func sameTree(a, b seal.Checkpoint) bool { return a.Size == b.Size && a.Root == b.Root }

// checkTargets returns a [RefusedError] unless the ledger contains the tree of each target. It reports whether a target
// contains a larger tree than c: another process has published it.
func (p *publisher) checkTargets(ctx context.Context, c seal.Checkpoint) (isAhead bool, err error) {
	for _, t := range p.targets {
		if t.newest == nil {
			continue
		}
		kept, found, err := t.newest(ctx)
		if err != nil {
			return false, fmt.Errorf("publish to %s: %w", t.name, err)
		}
		if !found {
			continue
		}
		if kept.Origin != p.signer.Origin() {
			return false, fmt.Errorf("publish to %s: it contains the log %s, and the key is for %s: use another path "+
				"for this log, or the key of that log", t.name, kept.Origin, p.signer.Origin())
		}
		err = seal.CheckPrefix(ctx, p.db, p.archive, kept)
		if errors.Is(err, seal.ErrNotSealed) || errors.Is(err, seal.ErrMismatch) {
			return false, &RefusedError{Where: t.name, Kept: kept, Reason: err}
		}
		if err != nil {
			return false, err
		}
		isAhead = isAhead || kept.Size > c.Size
		if !t.isState && sameTree(kept, c) {
			t.last = kept
		}
	}
	return isAhead, nil
}

// maxTail is more than a signed checkpoint takes.
const maxTail = 64 << 10

// lastOf returns the last checkpoint of a file, and false for a file that is empty or missing.
func lastOf(path string) (c seal.Checkpoint, found bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	defer func() { _ = f.Close() }() // it is only read
	info, err := f.Stat()
	if err != nil {
		return c, false, err
	}
	text := make([]byte, min(info.Size(), maxTail))
	if _, err := f.ReadAt(text, info.Size()-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return c, false, err
	}
	text = bytes.TrimRight(text, "\n")
	if len(text) == 0 {
		return c, false, nil
	}
	// The last checkpoint begins after an empty line; another empty line is before its signatures.
	begin := max(bytes.LastIndex(text, []byte("\n\n")), 0)
	if strings.HasPrefix(strings.TrimLeft(string(text[begin:]), "\n"), "— ") {
		begin = max(bytes.LastIndex(text[:begin], []byte("\n\n")), 0)
	}
	all, err := seal.ParseCheckpoints(string(text[begin:]) + "\n")
	if err != nil {
		return c, false, fmt.Errorf("%s: its last lines: %w", path, err)
	}
	return all[len(all)-1], true, nil
}

// appendTo appends a checkpoint and an empty line to a file by one write, and waits for the disk. If that fails, for
// example because the disk is full, the file has no part of the checkpoint.
func appendTo(path string, signed []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		if _, err = f.Write(append(bytes.Clone(signed), '\n')); err == nil {
			err = f.Sync()
		}
		if err != nil {
			err = errors.Join(err, f.Truncate(info.Size()))
		}
	}
	return errors.Join(err, f.Close())
}

// Publish publishes the newest checkpoint once, as the service does. It commits nothing.
func Publish(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	p, err := newPublisher(c)
	if err != nil {
		return err
	}
	return p.publish(ctx)
}
