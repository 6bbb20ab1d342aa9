package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/seal"
)

// verifiedArchive is the result of verify seal --file as JSON.
type verifiedArchive struct {
	Place string `json:"place"`
	archive.Report

	TookMS int64 `json:"took_ms"`
}

func verifyArchive(ctx context.Context, a *app, name string, kept []seal.Checkpoint) error {
	place, err := a.openArchive(name)
	if err != nil {
		return err
	}
	began := time.Now()
	var report archive.Report
	_, err = withProgress(a, "verified", func(show func(done, total int64)) (err error) {
		report, err = archive.Verify(ctx, place, &archive.VerifyOptions{Checkpoints: kept, Progress: show})
		return err
	})
	switch {
	case errors.Is(err, seal.ErrInconsistent), errors.Is(err, seal.ErrNotSealed):
		return failf(exitIntegrity, "%s: %s", name, err)
	case err != nil:
		return archiveError(err)
	case report.Volumes == 0:
		return failf(exitNotFound, "%s contains no volume", name).hinted("make one with: taskledger export %s", name)
	case report.Newer > 0 && report.Compared == 0:
		return failf(exitFailed, "%s: all %d checkpoints are newer than its tree of %s leaves: none was compared",
			name, report.Newer, count(report.Checkpoint.Size)).hinted("compare an older checkpoint too")
	}
	took := time.Since(began)
	answer := verifiedArchive{Place: name, Report: report, TookMS: took.Milliseconds()}
	return a.print(answer, func(w io.Writer) {
		rate := int64(float64(report.Events) / max(took.Seconds(), 1e-3))
		fmt.Fprintf(w, "verified: %s events in %d volumes, %s of them erased, in %s (%s/s)\n", count(report.Events),
			report.Volumes, count(report.Erased), age(took), count(rate))
		for i, p := range report.Positions {
			if i > 0 {
				fmt.Fprintf(w, "not exported: positions %d to %d\n", report.Positions[i-1].To+1, p.From-1)
			}
			fmt.Fprintf(w, "exported: positions %d to %d\n", p.From, p.To)
		}
		if report.Checkpoint != nil {
			fmt.Fprintf(w, "proved: %s events, by the tree of %s leaves, %s\n", count(report.Proved),
				count(report.Checkpoint.Size), report.Checkpoint.Root)
		}
		if report.Unproved > 0 {
			fmt.Fprintf(w, "not proved: %s events were not sealed when they were exported\n", count(report.Unproved))
		}
		switch {
		case report.Checkpoint == nil:
		case len(kept) == 0:
			fmt.Fprintln(w, "no checkpoint was compared: files and tree agree with each other, or both were changed")
		case report.Newer > 0:
			fmt.Fprintf(w, "valid: the tree agrees with %d checkpoints; %d are newer, and were not compared\n",
				report.Compared, report.Newer)
		default:
			fmt.Fprintf(w, "valid: the tree agrees with all %d checkpoints\n", len(kept))
		}
	})
}
