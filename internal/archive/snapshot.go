package archive

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// snapshot is a pg_snapshot.
type snapshot struct {
	xmin, xmax int64
	running    []int64 // the transactions between them that were open, in order
}

// parseSnapshot parses the text of a pg_snapshot.
func parseSnapshot(text string) (s snapshot, err error) {
	fields := strings.Split(text, ":")
	numbers := make([]int64, 0, 2)
	if len(fields) == 3 {
		for i, list := range fields {
			if i == 2 && list == "" {
				break
			}
			for n := range strings.SplitSeq(list, ",") {
				xid, failure := strconv.ParseInt(n, 10, 64)
				if failure != nil {
					err = failure
				}
				numbers = append(numbers, xid)
			}
		}
	}
	if err != nil || len(numbers) < 2 {
		return s, fmt.Errorf("invalid snapshot %q", text)
	}
	return snapshot{numbers[0], numbers[1], numbers[2:]}, nil
}

// sees reports whether the snapshot sees the effects of a transaction that was committed.
func (s snapshot) sees(xid int64) bool {
	if xid < s.xmin || xid >= s.xmax {
		return xid < s.xmin
	}
	_, isRunning := slices.BinarySearch(s.running, xid)
	return !isRunning
}
