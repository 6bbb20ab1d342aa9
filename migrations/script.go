package migrations

import (
	"fmt"
	"io/fs"
	"strings"
)

// SQL returns the migrations as one script, for another migration tool. The script also fills the version
// table, so that [Check] and [Up] find all migrations applied. It is not idempotent, and has no
// transaction of its own.
func SQL() (string, error) {
	var b strings.Builder
	b.WriteString("create schema if not exists taskledger;\n")
	names, err := fs.Glob(FS, "*.sql")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		text, err := FS.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n-- %s\n", name)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "-- +goose") {
				b.WriteString(line)
			}
		}
	}
	fmt.Fprintf(&b, "\n%s%s;\ninsert into %s (version_id, is_applied, tstamp)\n"+
		"select v, true, now() at time zone 'UTC' from generate_series(0, %d) v;\n",
		versionTableSQL, versionTableComment, versionTable, len(names)) // numbered from 1 without gaps
	return b.String(), nil
}
