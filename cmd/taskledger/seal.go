package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

func newSealCommand(a *app) *cobra.Command {
	var publish, keyFile, name string
	cmd := &cobra.Command{
		Use:   "seal",
		Short: "Seal the events, and print the checkpoint that an auditor keeps outside",
		Long: `Seal the events that have been committed, and print the checkpoint of all sealed events: three lines and
an empty one. Append them to a file that the administrators of the database cannot change. Later, taskledger verify
seal reports every sealed event that was changed, removed or inserted since.

Run it from time to time, by cron or a timer: its cost depends on the new events only. If it is interrupted or killed,
run it again: it continues. Several may run at once. taskledger serve --seal does it twice a second.

With --publish the checkpoint is also signed, cosigned by witnesses and published, as serve --seal does with this
file.

With --make-key it seals nothing: it makes an Ed25519 key that signs the checkpoints of this ledger, writes the secret
part into a file that must not exist, and prints the public part, a line for auditors and witnesses. The secret part is
stored nowhere else. A log that begins again needs a key with another --name: after the restore of an older backup, the
witnesses do not accept its tree under the name that they know.`,
		Example: "  taskledger seal >> /mnt/worm/checkpoints\n  taskledger seal --publish seal.yaml -o jsonl\n" +
			"  taskledger seal --make-key /etc/taskledger/seal.key",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case keyFile == "" && name != "":
				return usagef("--name needs --make-key: it is a part of the key's name")
			case keyFile != "" && publish != "":
				return usagef("--publish excludes --make-key")
			case keyFile != "":
				return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
					return createSealKey(ctx, a, pool, keyFile, name)
				})
			}
			file, text, err := readSealFile(a, publish)
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if err := sealEvents(ctx, a, pool); err != nil || text == nil {
					return err
				}
				return publishSeal(ctx, a, pool, file)
			})
		},
	}
	cmd.Flags().StringVar(&publish, "publish", "",
		"also publish the checkpoint as this `file` states: docs/audit.md (default: print it only)")
	cmd.Flags().StringVar(&keyFile, "make-key", "",
		"make a key, and write it into this `file`, which must not exist (default: seal)")
	cmd.Flags().StringVar(&name, "name", "",
		"`name` of the key's log, after the ledger's (default: the ledger's alone)")
	refuseZero(cmd.Flags(), "make-key", "name")
	return cmd
}

func sealEvents(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	var result seal.Result
	_, err := withProgress(a, "sealed", func(show func(done, total int64)) (err error) {
		result, err = seal.Run(ctx, pool, show)
		return err
	})
	if err != nil {
		return err
	}
	if a.config.output == formatTable {
		fmt.Fprintf(a.stderr, "sealed: %s events\n", count(result.Sealed))
	}
	return a.print(result, func(w io.Writer) { fmt.Fprintln(w, result.Checkpoint) })
}

// readCheckpoints returns the checkpoints of a file.
func (a *app) readCheckpoints(name string) ([]seal.Checkpoint, error) {
	text, err := a.readFile(name)
	if err != nil {
		return nil, err
	}
	all, err := seal.ParseCheckpoints(string(text))
	if err != nil {
		return nil, usagef("%s: %s", name, err)
	}
	return all, nil
}

// readSigned returns the checkpoints of a file, whose signatures satisfy a policy.
func (a *app) readSigned(name string, policy seal.Policy) ([]seal.Checkpoint, error) {
	text, err := a.readFile(name)
	if err != nil {
		return nil, err
	}
	verified, err := policy.OpenAll(string(text))
	if errors.Is(err, seal.ErrSignature) {
		return nil, failf(exitIntegrity, "%s: %s", name, err).
			hinted("compare --key and --witness with the keys that the administrators have announced")
	}
	if err != nil {
		return nil, usagef("%s: %s", name, err)
	}
	all := make([]seal.Checkpoint, len(verified))
	for i, v := range verified {
		all[i] = v.Checkpoint
	}
	return all, nil
}

func addCheckpointFlag(cmd *cobra.Command, name *string, text string) {
	cmd.Flags().StringVar(name, "checkpoint", "", text+"; - is standard input")
}

func newVerifySealCommand(a *app) *cobra.Command {
	var kept, file, proofs, archive string
	var f watchSealFlags
	signatures := &f.policyFlags
	cmd := &cobra.Command{
		Use:   "seal [URL|PATH]",
		Short: "Compare the sealed events with the seal and with checkpoints kept outside",
		Long: `Compare all sealed events with the seal, and the seal with checkpoints that were kept outside, without
stopping anything. The exit code is 7 if an event was changed, removed or inserted, if the seal was changed, or if it
does not match a checkpoint; the output lists each case.

Without --checkpoint it compares events and seal alone: an owner who changes both is not detected. With --key each
checkpoint must be signed by that key, and cosigned by the witnesses. The first checkpoint that does not match bounds
the change: it happened after the checkpoint before it was printed, to an event that the first one covers.

With URL or PATH it works without a database, on an auditor's machine: it reads the newest checkpoint that serve --seal
has published, verifies its signature and the cosignatures of witnesses, and proves from the tiles that its tree
contains the tree of the last call. It repeats this until something is wrong, and then ends with an exit code:

  7  a signature is missing or invalid, leaves are gone, or the log contains another tree
  1  no new checkpoint or cosignature within --max-age
  5  the checkpoint or a tile could not be read for --max-age

PATH is the directory of serve --seal, or a copy. URL is a web server that serves this directory. PATH may also be a
file of checkpoints: it has no tiles, so only signatures and sizes are compared, and consistency needs witnesses.

--state names the file that keeps the last checkpoint between calls. Without witnesses the age of a checkpoint is the
time since it was first read: of an idle ledger it grows. With witnesses it is the time of the cosignatures.

With --file it verifies an archive, without a database: each file, the order and the number of events, and that
each sealed event is in the tree of its volume's checkpoint: docs/archive.md. A checkpoint that is newer than all
volumes is not compared. Of archived tasks, a volume that is missing as a whole is not noticed.

With --proofs it checks the proofs that taskledger prove has printed as JSON, without a database. Of an erased event
only the hash of data, meta and actor is proved. The exit code is 7 if a proof or its event was changed, or if it is for
the tree of no checkpoint; - is standard input.`,
		Example: "  taskledger verify seal --checkpoint /mnt/worm/checkpoints\n" +
			"  taskledger verify seal --checkpoint checkpoints -o json\n" +
			"  taskledger verify seal https://audit.example.com/ledger --key 'taskledger/…' --state seal.state\n" +
			"  taskledger verify seal /mnt/seal --key 'taskledger/…' --state seal.state --once\n" +
			"  taskledger verify seal --file /mnt/archive --checkpoint checkpoints\n" +
			"  taskledger verify seal --proofs proofs --checkpoint checkpoints",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if kept != "" || file != "" || proofs != "" {
					return usagef("--checkpoint, --file and --proofs exclude URL and PATH")
				}
				return watchSeal(cmd.Context(), a, f, args[0])
			}
			for _, name := range watchFlags {
				if cmd.Flags().Changed(name) {
					return usagef("--%s needs the URL or PATH of a published seal", name)
				}
			}
			var o seal.VerifyOptions
			policy, isSigned, err := signatures.policy()
			if err != nil {
				return err
			}
			switch {
			case proofs != "" && kept == "":
				return usagef("--checkpoint is required: a proof is for the tree of a checkpoint").
					hinted("give the file to which taskledger seal has appended")
			case proofs != "" && file != "":
				return usagef("--proofs and --file exclude each other")
			case proofs == "-" && kept == "-":
				return usagef("only one of both files can be standard input")
			case isSigned && kept == "":
				return usagef("--key needs --checkpoint: it verifies the signatures of checkpoints")
			case isSigned:
				o.Checkpoints, err = a.readSigned(kept, policy)
			case kept != "":
				o.Checkpoints, err = a.readCheckpoints(kept)
			}
			if err != nil {
				return err
			}
			if proofs != "" {
				return checkProofs(a, proofs, o.Checkpoints)
			}
			if file != "" {
				return verifyArchive(cmd.Context(), a, file, o.Checkpoints)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				o.Archive = seal.Archive{Place: archive, Open: a.openObjects}
				return verifySeal(ctx, a, pool, o)
			})
		},
	}
	cmd.Flags().StringVar(&proofs, "proofs", "",
		"`file` with the output of taskledger prove as JSON; needs --checkpoint")
	refuseZero(cmd.Flags(), "proofs")
	addCheckpointFlag(cmd, &kept, "file of checkpoints that taskledger seal has printed (default: none)")
	addArchiveFlag(cmd, &archive)
	f.add(cmd.Flags())
	f.addWatch(cmd.Flags())
	cmd.Flags().StringVar(&file, "file", "",
		"`place` of an archive to verify: a directory, or s3://BUCKET/PREFIX (default: the database)")
	refuseZero(cmd.Flags(), "file")
	return cmd
}

// verifiedSeal is the result of verify seal as JSON.
type verifiedSeal struct {
	Valid bool `json:"valid"`
	seal.Report

	FirstWrong *seal.Comparison `json:"first_wrong,omitempty"` // the first checkpoint that does not match
	LastRight  *seal.Comparison `json:"last_right,omitempty"`  // the checkpoint before it, or the last of all

	TookMS int64 `json:"took_ms"`
}

func verifySeal(ctx context.Context, a *app, pool *pgxpool.Pool, o seal.VerifyOptions) error {
	began := time.Now()
	var report seal.Report
	_, err := withProgress(a, "verified", func(show func(done, total int64)) (err error) {
		o.Progress = show
		report, err = seal.Verify(ctx, pool, &o)
		return err
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	answer := verifiedSeal{Valid: report.IsValid(), Report: report, TookMS: took.Milliseconds()}
	answer.FirstWrong, answer.LastRight = report.FirstWrong()
	if err := a.print(answer, func(w io.Writer) { renderSealReport(w, report, took) }); err != nil {
		return err
	}
	switch n := len(report.Unchecked); {
	case answer.Valid && n > 0:
		return failf(exitUnavailable, "not verified: %s", plain(report.Unchecked[0].String())).hinted(archiveHint)
	case answer.Valid:
		return nil
	}
	wrong := 0
	for _, c := range report.Comparisons {
		if c.Problem != "" {
			wrong++
		}
	}
	return failf(exitIntegrity, "the seal is broken: %s faults, %d of %d checkpoints do not match",
		count(report.Faulty), wrong, len(report.Comparisons)).
		hinted("keep this database as it is, and compare it with backups: docs/audit.md")
}

func renderSealReport(w io.Writer, r seal.Report, took time.Duration) {
	for _, f := range r.Faults {
		fmt.Fprintln(w, plain(f.String()))
	}
	if more := r.Faulty - int64(len(r.Faults)); more > 0 {
		fmt.Fprintf(w, "and %s more\n", count(more))
	}
	for _, c := range r.Comparisons {
		if c.Problem != "" {
			fmt.Fprintf(w, "checkpoint of %s leaves, %s: %s\n", count(c.Size), c.Root, plain(c.Problem))
		}
	}
	for _, u := range r.Unchecked {
		fmt.Fprintln(w, "not verified:", plain(u.String()))
	}
	if wrong, before := r.FirstWrong(); wrong != nil && before != nil {
		fmt.Fprintf(w, "the first checkpoint that does not match covers %s leaves; the last that does covers %s\n",
			count(wrong.Size), count(before.Size))
	} else if wrong != nil {
		fmt.Fprintf(w, "the first checkpoint that does not match covers %s leaves; none before it matches\n",
			count(wrong.Size))
	}
	rate := int64(float64(r.Checkpoint.Size) / max(took.Seconds(), 1e-3))
	fmt.Fprintf(w, "verified: %s sealed events, %s of them erased, in %s (%s/s)\n", count(r.Checkpoint.Size),
		count(r.Erased), age(took), count(rate))
	if r.Archived > 0 {
		fmt.Fprintf(w, "archived: %s of them, whose leaves alone are compared\n", count(r.Archived))
	}
	if r.Unsealed > 0 {
		fmt.Fprintf(w, "not sealed yet: %s events\n", count(r.Unsealed))
	}
	switch {
	case len(r.Comparisons) == 0:
		fmt.Fprintln(w, "no checkpoint was compared: events and seal agree with each other, or both were changed")
	case r.IsValid() && len(r.Unchecked) == 0:
		fmt.Fprintf(w, "valid: it contains the trees of all %d checkpoints\n", len(r.Comparisons))
	}
}

// proofFlags are the options of prove.
type proofFlags struct {
	kept  string
	event int32
	after int32
	limit int

	archive string
}

func newProveCommand(a *app) *cobra.Command {
	var f proofFlags
	cmd := &cobra.Command{
		Use:   "prove KIND BIZ_ID",
		Short: "Prove that the events of a task are in the tree of a checkpoint",
		Long: `Prove that the events of a task are in the tree of a checkpoint. Default: the tree of all sealed events.
With -o jsonl each line contains the proof of an event, with the event and the salt of its personal data.
taskledger verify seal --proofs checks them without a database. The exit code is 7 if an event differs from the sealed
event.`,
		Example: "  taskledger prove coupon.send order-17\n" +
			"  taskledger prove coupon.send order-17 --checkpoint checkpoints -o jsonl > proofs",
		Args: keyArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.limit < 1 || f.limit > maxProofs {
				return usagef("--limit must be between 1 and %d, got %d", maxProofs, f.limit)
			}
			switch {
			case f.event < 0:
				return usagef("--event must be a version, 1 or more, got %d", f.event)
			case f.after < 0:
				return usagef("--after must be a version, got %d", f.after)
			case f.event > 0 && f.after > 0:
				return usagef("--event and --after cannot be used together")
			}
			return proveTask(cmd.Context(), a, args, f)
		},
	}
	addCheckpointFlag(cmd, &f.kept, "file whose last checkpoint the proofs are for (default: all sealed events)")
	cmd.Flags().Int32Var(&f.event, "event", 0, "version of the only event to prove (default: all)")
	refuseZero(cmd.Flags(), "event")
	cmd.Flags().IntVar(&f.limit, "limit", 100, fmt.Sprintf("maximum number of events, 1 to %d", maxProofs))
	cmd.Flags().Int32Var(&f.after, "after", 0, "`version` at which to continue: \"next\" of the previous call")
	addArchiveFlag(cmd, &f.archive)
	return cmd
}

// maxProofs bounds --limit of prove.
const maxProofs = 10_000

// provedTask is the result of prove as JSON.
type provedTask struct {
	Checkpoint seal.Checkpoint  `json:"checkpoint"`
	Events     []seal.TaskEvent `json:"events"`
	Next       ledger.Version   `json:"next,omitempty"`
}

func proveTask(ctx context.Context, a *app, args []string, f proofFlags) error {
	key, err := parseKey(args)
	if err != nil {
		return err
	}
	var c seal.Checkpoint
	if f.kept != "" {
		all, err := a.readCheckpoints(f.kept)
		if err != nil {
			return err
		}
		c = all[len(all)-1]
	}
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if f.kept == "" {
		if c, err = seal.Newest(ctx, pool); err != nil {
			return err
		}
	}
	after, limit := ledger.Version(f.after), f.limit
	if f.event > 0 {
		after, limit = ledger.Version(f.event-1), 1
	}
	events, next, err := cutPage(limit, func(limit int) ([]seal.TaskEvent, error) {
		return seal.ProveTask(ctx, pool, seal.Archive{Place: f.archive, Open: a.openObjects}, key, after, limit, c)
	}, func(e seal.TaskEvent) ledger.Version { return e.Version })
	if err != nil {
		return err
	}
	if f.event > 0 {
		next = 0
	}
	if len(events) == 0 || f.event > 0 && int32(events[0].Version) != f.event {
		return failf(exitNotFound, "task %s has no such event", key).
			hinted("see: taskledger history %s %s", key.Kind, key.BizID)
	}
	noteNext(a, next)
	unsealed, wrong := 0, error(nil)
	for _, e := range events {
		if e.Proof == nil {
			unsealed++
		} else {
			wrong = errors.Join(wrong, e.Proof.Check(c))
		}
	}
	err = printList(a, provedTask{c, events, next}, events, func(w io.Writer) {
		renderProofs(w, c, events)
		if f.kept == "" {
			fmt.Fprintln(w, "no checkpoint was given: the proofs are for the tree that the database has now")
		}
	})
	if err != nil {
		return err
	}
	if unsealed > 0 {
		fmt.Fprintf(a.stderr, "%d of %d events are not in the tree of %s leaves; to seal them: taskledger seal\n",
			unsealed, len(events), count(c.Size))
	}
	return wrong
}

func renderProofs(w io.Writer, c seal.Checkpoint, events []seal.TaskEvent) {
	t := newTable([]any{"version", "event", "position", "leaf", "proof"}, 1, 3, 4)
	for _, e := range events {
		row := []any{e.Version, "", "", "", "not sealed"}
		if p := e.Proof; p != nil {
			row = []any{e.Version, p.Event.Type, p.Event.Position, p.Leaf, "valid"}
			switch {
			case p.Check(c) != nil:
				row[4] = "another event was sealed"
			case p.IsErased():
				row[4] = "valid; text erased, only its hash is proved"
			}
		}
		t.AppendRow(row)
	}
	fmt.Fprintf(w, "tree of %s leaves, %s\n", count(c.Size), c.Root)
	renderTable(w, t)
}
