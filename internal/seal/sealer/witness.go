package sealer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

const (
	witnessTimeout = 10 * time.Second
	maxAnswer      = 16 << 10
)

// ErrWitness means that a witness has refused a checkpoint for a reason that does not pass by itself.
var ErrWitness = errors.New("the witness refuses the checkpoint")

// witness asks a server for cosignatures, by C2SP tlog-witness. It is for one goroutine.
type witness struct {
	Witness

	archive seal.Archive
	client  *http.Client
	seen    int64 // the size of the tree that the witness has cosigned last; learned from its answers
}

func newWitness(w Witness, a seal.Archive) *witness {
	return &witness{Witness: w, archive: a, client: &http.Client{
		Timeout:       witnessTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// cosign returns the lines with the cosignatures of a signed checkpoint. They are not verified yet.
func (w *witness) cosign(ctx context.Context, db ledger.DB, c seal.Checkpoint, signed []byte) ([]byte, error) {
	lines, status, err := w.add(ctx, db, c, signed)
	if err == nil && status == http.StatusConflict { // the witness has seen another size than this process knows
		lines, status, err = w.add(ctx, db, c, signed)
	}
	if err != nil {
		return nil, fmt.Errorf("witness %s: %w", w.URL, err)
	}
	reason := ""
	switch status {
	case http.StatusOK:
		w.seen = c.Size
		return lines, nil
	case http.StatusNotFound:
		reason = "it does not know the log " + firstLine(signed) + ": register its public key with the witness"
	case http.StatusForbidden:
		reason = "it does not trust the key: register the public key of this log with the witness"
	case http.StatusUnprocessableEntity:
		reason = fmt.Sprintf("it has cosigned another tree of %d leaves: this ledger was changed or restored", w.seen)
	case http.StatusBadRequest:
		reason = "it calls the request invalid"
	default:
		return nil, fmt.Errorf("witness %s: HTTP status %d", w.URL, status)
	}
	return nil, fmt.Errorf("witness %s: %w: %s", w.URL, ErrWitness, reason)
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// add sends a request, and returns the body of the answer and its status. After a conflict it knows the size that the
// witness has seen.
func (w *witness) add(ctx context.Context, db ledger.DB, c seal.Checkpoint, signed []byte) ([]byte, int, error) {
	if w.seen > c.Size {
		return nil, 0, fmt.Errorf("%w: it has cosigned a tree of %d leaves, this one has %d: "+
			"the database was restored from an older backup, or is a copy", ErrWitness, w.seen, c.Size)
	}
	body := fmt.Appendf(nil, "old %d\n", w.seen)
	if w.seen > 0 && w.seen < c.Size {
		proof, err := seal.ProveConsistency(ctx, db, w.archive, w.seen, c.Size)
		if err != nil {
			return nil, 0, err
		}
		for _, hash := range proof {
			body = append(body, hash.String()+"\n"...)
		}
	}
	body = append(append(body, '\n'), signed...)
	address := strings.TrimSuffix(w.URL, "/") + "/add-checkpoint"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("User-Agent", "taskledger")
	answer, err := w.client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	lines, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, 0, err
	}
	if answer.StatusCode == http.StatusConflict {
		size, err := strconv.ParseInt(strings.TrimSuffix(string(lines), "\n"), 10, 64)
		if err != nil || size < 0 {
			return nil, 0, fmt.Errorf("HTTP status %d without a size", answer.StatusCode)
		}
		w.seen = size
	}
	return lines, answer.StatusCode, nil
}

// cosignAll returns a signed checkpoint with the valid cosignatures of all witnesses, and why others are missing.
func cosignAll(
	ctx context.Context, db ledger.DB, all []*witness, key string, c seal.Checkpoint, signed []byte,
) ([]byte, error) {
	answers, faults := make([][]byte, len(all)), make([]error, len(all))
	var running sync.WaitGroup
	for i, w := range all {
		running.Go(func() {
			answers[i], faults[i] = w.cosign(ctx, db, c, signed)
			if faults[i] == nil {
				policy := seal.Policy{Key: key, Witnesses: []string{w.PublicKey}, Quorum: 1}
				if _, err := policy.Open(seal.AddSignatures(signed, answers[i])); err != nil {
					answers[i], faults[i] = nil, fmt.Errorf("witness %s: %w", w.URL, err)
				}
			}
		})
	}
	running.Wait()
	cosigned := signed
	for _, lines := range answers {
		cosigned = seal.AddSignatures(cosigned, lines)
	}
	return cosigned, errors.Join(faults...)
}
