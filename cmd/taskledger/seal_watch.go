package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/taskledger/taskledger/internal/bucket"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/seal"
)

// policyFlags are which signatures checkpoints must have.
type policyFlags struct {
	key       string
	witnesses []string
	quorum    int
}

func (f *policyFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.key, "key", "", "public `key` of the log, which taskledger seal --make-key printed")
	flags.StringArrayVar(&f.witnesses, "witness", nil, "public `key` of a witness; may be repeated")
	flags.IntVar(&f.quorum, "quorum", 0, "how many of the witnesses must have cosigned (default: all)")
	refuseZero(flags, "quorum")
}

// policy returns the policy; without --key false.
func (f *policyFlags) policy() (seal.Policy, bool, error) {
	if f.key == "" {
		if len(f.witnesses) > 0 || f.quorum != 0 {
			return seal.Policy{}, false, usagef("--witness and --quorum need --key")
		}
		return seal.Policy{}, false, nil
	}
	p := seal.Policy{Key: f.key, Witnesses: f.witnesses, Quorum: f.quorum}
	if f.quorum == 0 {
		p.Quorum = len(f.witnesses)
	}
	return p, true, p.Validate()
}

// watchSealFlags are the options of verify seal with a published seal.
type watchSealFlags struct {
	policyFlags

	state  string
	maxAge time.Duration
	every  time.Duration
	once   bool
}

const (
	defaultMaxAge    = time.Hour
	defaultWatchSeal = time.Minute
	minWatchSeal     = time.Second
	fetchTimeout     = 30 * time.Second
	maxTile          = 8 << 10
)

// watchFlags are the names of the flags that only the published seal has.
var watchFlags = []string{"state", "max-age", "every", "once"}

// addWatch adds the flags of the published seal.
func (f *watchSealFlags) addWatch(flags *pflag.FlagSet) {
	flags.StringVar(&f.state, "state", "",
		"`file` with the last checkpoint of URL or PATH; it is made by the first call")
	f.maxAge, f.every = defaultMaxAge, defaultWatchSeal
	addDuration(flags, &f.maxAge, "max-age", "of URL or PATH: greatest age of the newest checkpoint (default: 1h)")
	addDuration(flags, &f.every, "every", "of URL or PATH: time between two checks (default: 1m)")
	flags.BoolVar(&f.once, "once", false, "check URL or PATH once, and end with exit code 0 if all is well")
	refuseZero(flags, "state", "max-age", "every")
}

// watchSeal checks the published seal at where.
func watchSeal(ctx context.Context, a *app, f watchSealFlags, where string) error {
	policy, ok, err := f.policy()
	switch {
	case err != nil:
		return err
	case !ok:
		return usagef("--key is required: the public key of the log").
			hinted("taskledger seal --make-key printed it")
	case f.state == "":
		return usagef("--state is required: the file that keeps the last checkpoint between calls")
	case f.every < minWatchSeal:
		return usagef("--every must be at least %s, got %s", minWatchSeal, f.every)
	}
	w := &sealWatch{app: a, flags: f, policy: policy, where: where, name: where, now: time.Now}
	if u, err := url.Parse(where); err == nil {
		w.name = u.Redacted()
	}
	return w.run(ctx)
}

// sealWatch is a call of verify seal with a published seal.
type sealWatch struct {
	*app

	flags  watchSealFlags
	policy seal.Policy
	where  string
	name   string // where without a password
	now    func() time.Time

	readAt time.Time // when the log was last read
}

// watchedSeal is the result of a check as JSON.
type watchedSeal struct {
	seal.Observation

	AgeMS int64 `json:"age_ms"`
}

func (w *sealWatch) run(ctx context.Context) error {
	w.readAt = w.now()
	for {
		err := w.check(ctx)
		if err != nil && (w.flags.once || !w.isTemporary(err)) {
			return err
		}
		if err != nil {
			fmt.Fprintf(w.stderr, "cannot read %s; trying again: %s\n", plain(w.name), plain(err.Error()))
		} else if w.readAt = w.now(); w.flags.once {
			return nil
		}
		if loop.Sleep(ctx, w.flags.every) != nil {
			return nil // interrupted
		}
	}
}

// isTemporary reports whether the log could only not be read, and that not for long.
func (w *sealWatch) isTemporary(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.exit == exitUnavailable && w.now().Sub(w.readAt) < w.flags.maxAge
}

// check checks the log once, and keeps its checkpoint.
func (w *sealWatch) check(ctx context.Context) error {
	earlier, since, err := w.readState()
	if err != nil {
		return err
	}
	log, isFile, err := w.log(ctx)
	if err != nil {
		return err
	}
	var o seal.Observation
	if isFile {
		o, err = w.observeFile(earlier)
	} else {
		o, err = log.Observe(ctx, w.policy, earlier)
	}
	if err != nil {
		return w.failed(err)
	}
	if earlier == nil || o.Earlier != o.Checkpoint {
		since = w.now()
	}
	if err := w.writeState(o.Text, since); err != nil {
		return err
	}
	if at := o.CosignedAt(w.policy.Quorum); w.policy.Quorum > 0 {
		since = at
	}
	old := w.now().Sub(since)
	err = w.print(watchedSeal{o, old.Milliseconds()}, func(out io.Writer) {
		fmt.Fprintf(out, "valid: %s leaves, %s new, %d cosignatures, %s old\n", count(o.Size),
			count(o.Size-o.Earlier.Size), len(o.Cosignatures), age(old))
	})
	if err == nil && old > w.flags.maxAge {
		err = failf(exitFailed, "the newest checkpoint, %s leaves, is %s old, more than %s", count(o.Size), age(old),
			age(w.flags.maxAge)).
			hinted("is serve --seal running, and is its directory copied here? see its log")
	}
	return err
}

// failed returns an error of a check with its exit code and cure.
func (w *sealWatch) failed(err error) error {
	switch {
	case errors.Is(err, seal.ErrSignature):
		return failf(exitIntegrity, "%s: %s", w.name, err).
			hinted("compare --key and --witness with the keys that the administrators have announced")
	case errors.Is(err, seal.ErrInconsistent):
		return failf(exitIntegrity, "%s: %s", w.name, err).
			hinted("keep %s, and compare with the ledger: taskledger verify seal --checkpoint", w.flags.state)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errFetch):
		return failf(exitUnavailable, "%s: %s", w.name, err).hinted("is it the directory of serve --seal, or its URL?")
	}
	return err
}

// errFetch means that a web server or an object store did not answer as expected.
var errFetch = errors.New("cannot fetch")

// log returns the log at the address, or true for a file of checkpoints.
func (w *sealWatch) log(ctx context.Context) (log seal.Log, isFile bool, err error) {
	if strings.HasPrefix(w.where, "http://") || strings.HasPrefix(w.where, "https://") {
		base, err := url.Parse(w.where)
		if err != nil {
			return log, false, usagef("%s", err)
		}
		client := &http.Client{Timeout: fetchTimeout}
		return seal.Log{Fetch: func(ctx context.Context, path string) ([]byte, error) {
			return fetchFile(ctx, client, base.JoinPath(path).String())
		}}, false, nil
	}
	if strings.HasPrefix(w.where, bucket.Scheme) {
		objects, err := bucket.Open(w.where, w.getenv)
		if err != nil {
			return log, false, usagef("%s", err)
		}
		return seal.Log{Fetch: func(ctx context.Context, path string) ([]byte, error) {
			text, err := objects.Get(ctx, path, 0, -1)
			if err != nil {
				err = fmt.Errorf("%w: %w", errFetch, err)
			}
			return text, err
		}}, false, nil
	}
	info, err := os.Stat(w.where)
	if err != nil {
		return log, false, w.failed(err)
	}
	return seal.Log{Fetch: seal.Directory(w.where).Fetch}, !info.IsDir(), nil
}

func fetchFile(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFetch, err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return nil, fmt.Errorf("%w: %w", errFetch, fs.ErrNotExist)
	default:
		return nil, fmt.Errorf("%w: HTTP status %d", errFetch, answer.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 2*maxTile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFetch, err)
	}
	return text, nil
}

// observeFile checks the checkpoints of a file: their signatures, and that none has fewer leaves than an earlier one or
// another tree of the same size.
func (w *sealWatch) observeFile(earlier []byte) (o seal.Observation, err error) {
	text, err := w.readFile(w.where)
	if err != nil {
		return o, err
	}
	all, err := w.policy.OpenAll(string(text))
	if err != nil {
		return o, err
	}
	if earlier != nil {
		kept, err := seal.Policy{Key: w.policy.Key}.Open(earlier)
		if err != nil {
			return o, fmt.Errorf("%s: %w", w.flags.state, err)
		}
		o.Earlier = kept.Checkpoint
		if !slices.ContainsFunc(all, func(v seal.Verified) bool { return v.Checkpoint == kept.Checkpoint }) {
			return o, fmt.Errorf("%w: the file lacks the checkpoint of %d leaves that it contained",
				seal.ErrInconsistent, kept.Size)
		}
	}
	var last seal.Checkpoint
	for _, v := range all {
		switch {
		case v.Size < last.Size:
			return o, fmt.Errorf("%w: %d leaves follow %d", seal.ErrInconsistent, v.Size, last.Size)
		case v.Size == last.Size && last.Origin != "" && v.Root != last.Root:
			return o, fmt.Errorf("%w: two trees have %d leaves", seal.ErrInconsistent, v.Size)
		}
		last = v.Checkpoint
	}
	o.Verified = all[len(all)-1]
	o.Text, err = seal.LastSigned(string(text))
	return o, err
}

// readState returns the kept checkpoint, and when it was first read; nil without one.
func (w *sealWatch) readState() (text []byte, since time.Time, err error) {
	text, err = os.ReadFile(w.flags.state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, since, nil
	}
	if err != nil {
		return nil, since, usagef("%s", err)
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	if since, err = time.Parse(time.RFC3339, line); err != nil || rest == "" {
		return nil, since, usagef("%s is not a file of verify seal", w.flags.state).
			hinted("name the file of the last call, or a new file")
	}
	return []byte(rest), since, nil
}

// writeState replaces the kept checkpoint at once.
func (w *sealWatch) writeState(text []byte, since time.Time) error {
	f, err := os.CreateTemp(filepath.Dir(w.flags.state), ".seal-*")
	if err != nil {
		return usagef("--state: %s", err)
	}
	_, err = f.WriteString(since.UTC().Format(time.RFC3339) + "\n" + string(text))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), w.flags.state)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
