package seal

import (
	"encoding/json"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/ledger"
)

// Checkpoint identifies a tree, and with it all events that it covers and their order.
type Checkpoint struct {
	Origin string    `json:"origin"` // "taskledger" and the installation of the ledger
	Size   int64     `json:"size"`   // the number of leaves
	Root   tlog.Hash `json:"root"`   // the hash of the tree
}

// originPrefix begins each origin.
const originPrefix = "taskledger "

// String returns the checkpoint in the form that [ParseCheckpoints] reads: three lines.
func (c Checkpoint) String() string {
	return c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + c.Root.String() + "\n"
}

// ParseCheckpoints returns the checkpoints of a file, in its order. It returns an [*ledger.InvalidError] for a text
// that is not a sequence of checkpoints, separated by empty lines, or that is empty.
func ParseCheckpoints(text string) ([]Checkpoint, error) {
	var all []Checkpoint
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" {
			continue
		}
		if i+2 >= len(lines) {
			return nil, invalidCheckpoint(i, "a checkpoint has three lines")
		}
		size, err := strconv.ParseInt(lines[i+1], 10, 64)
		root, rootErr := tlog.ParseHash(lines[i+2])
		switch {
		case !strings.HasPrefix(lines[i], originPrefix):
			return nil, invalidCheckpoint(i, "the first line of a checkpoint begins with "+strconv.Quote(originPrefix))
		case err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[i+1]:
			return nil, invalidCheckpoint(i+1, "the second line of a checkpoint is the number of leaves")
		case rootErr != nil || root.String() != lines[i+2]:
			return nil, invalidCheckpoint(i+2, "the third line of a checkpoint is a hash of 32 bytes in base64")
		case i+3 < len(lines) && lines[i+3] != "":
			return nil, invalidCheckpoint(i+3, "an empty line follows a checkpoint")
		}
		all = append(all, Checkpoint{Origin: lines[i], Size: size, Root: root})
		i += 2
	}
	if len(all) == 0 {
		return nil, &ledger.InvalidError{Field: "checkpoint", Rule: "must not be empty"}
	}
	return all, nil
}

func invalidCheckpoint(line int, rule string) error {
	return &ledger.InvalidError{Field: "checkpoint", Value: "line " + strconv.Itoa(line+1), Rule: rule}
}

// ParseProof returns a proof from its JSON. For any other text it returns an [*ledger.InvalidError], as
// [Proof.UnmarshalJSON] does.
func ParseProof(text []byte) (p Proof, err error) {
	if err := json.Unmarshal(text, &p); err != nil {
		return Proof{}, &ledger.InvalidError{Field: "proof", Rule: "must be the JSON of a proof: " + err.Error()}
	}
	return p, nil
}
