package health

import (
	"context"
	"fmt"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/printable"
)

func checkArchive(ctx context.Context, c Config, r *Report) error {
	s, err := archiver.ReadState(ctx, c.DB)
	if err != nil || s == nil {
		return err
	}
	r.Archive = s
	if t := c.Thresholds[ArchiveHeld]; s.Held > 0 && isExceeded(s.Cutoff.Sub(s.HeldSince), t) {
		r.add(Condition{
			Name: ArchiveHeld, Threshold: t,
			Text: fmt.Sprintf("reader %s holds finished tasks in the tables: %s, the oldest of %s", s.HeldBy,
				printable.Count(s.Held), s.HeldSince.Format("2006-01-02")),
			Cure: archiveCure(s.HeldBy),
		})
	}
	since := s.UnfinishedSince
	if since.IsZero() {
		return nil
	}
	if s.RemovedAt.After(since) {
		since = s.RemovedAt
	}
	if t := c.Thresholds[ArchiveStopped]; isExceeded(r.At.Sub(since), t) {
		r.add(Condition{
			Name: ArchiveStopped, Threshold: t, Since: since,
			Text: "a run of the archive has begun, and neither ended nor removed tasks",
		})
	}
	return nil
}

// archiveCure returns the cure if a service holds tasks in the tables, and "" for other readers.
func archiveCure(reader string) string {
	switch reader {
	case "seal":
		return "tasks stay until they are sealed. Run: taskledger seal, or keep it up with serve --seal"
	case "projector", "line":
		return "start taskledger serve, or read its log"
	}
	return ""
}
