package ledger

import (
	"encoding/json"
	"strings"
)

// Erased returns the keys of the tasks whose data, meta and actor were erased, if e is the record of an erasure, and
// none otherwise. A subscriber of kind taskledger.operation removes its copies of these tasks' earlier events.
func Erased(e Event) []Key {
	if e.Kind != "taskledger.operation" || e.Version != 1 || !strings.HasPrefix(string(e.BizID), "erase/") {
		return nil
	}
	var act struct {
		Tasks []string `json:"tasks"`
	}
	if json.Unmarshal(e.Data, &act) != nil {
		return nil
	}
	keys := make([]Key, 0, len(act.Tasks))
	for _, t := range act.Tasks {
		kind, id, _ := strings.Cut(t, "/")
		keys = append(keys, Key{Kind: Kind(kind), BizID: BizID(id)})
	}
	return keys
}
