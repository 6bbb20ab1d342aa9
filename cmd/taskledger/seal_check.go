package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/strictjson"
)

// checkedProof is the result for an event.
type checkedProof struct {
	Event   string `json:"event"` // kind/biz_id@version
	Type    string `json:"type"`
	Leaf    int64  `json:"leaf"`
	Size    int64  `json:"size"`
	Valid   bool   `json:"valid"`
	Erased  bool   `json:"erased"` // only the hash of data, meta and actor is proved
	Problem string `json:"problem,omitempty"`
}

// checkProofs checks the proofs in a file that prove has printed against checkpoints.
func checkProofs(a *app, name string, checkpoints []seal.Checkpoint) error {
	text, err := a.readFile(name)
	if err != nil {
		return err
	}
	proofs, err := readProofs(name, text)
	if err != nil {
		return err
	}
	checked, invalid := make([]checkedProof, len(proofs)), 0
	for i, p := range proofs {
		checked[i] = checkProof(p, checkpoints)
		if !checked[i].Valid {
			invalid++
		}
	}
	list := struct {
		Proofs []checkedProof `json:"proofs"`
	}{checked}
	err = printList(a, list, checked, func(w io.Writer) {
		for _, c := range checked {
			if !c.Valid {
				fmt.Fprintf(w, "invalid: %s: %s\n", plain(c.Event), plain(c.Problem))
				continue
			}
			erased := ""
			if c.Erased {
				erased = "; data, meta and actor are erased: only their hash is proved"
			}
			fmt.Fprintf(w, "valid: %s %s, leaf %d of %s%s\n", plain(c.Event), plain(c.Type), c.Leaf, count(c.Size),
				erased)
		}
	})
	if err != nil || invalid == 0 {
		return err
	}
	return failf(exitIntegrity, "%d of %d proofs are invalid", invalid, len(proofs)).
		hinted("for the tree of a checkpoint: taskledger prove KIND BIZ_ID --checkpoint FILE -o jsonl")
}

// readProofs returns the proofs of the output of prove, as JSON or JSON lines.
func readProofs(name string, text []byte) (proofs []seal.Proof, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var value struct {
			provedTask
			seal.TaskEvent
		}
		var one json.RawMessage
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = strictjson.Unmarshal(one, &value)
		}
		if err != nil {
			return nil, usagef("%s is not the output of taskledger prove as JSON: %s", name, err)
		}
		isOther := func(e seal.TaskEvent) bool { return e.Proof != nil && e.Proof.Checkpoint != value.Checkpoint }
		if i := slices.IndexFunc(value.Events, isOther); i >= 0 {
			return nil, usagef("%s: the proof of version %d is for another checkpoint than the list", name,
				value.Events[i].Version)
		}
		for _, e := range append(value.Events, value.TaskEvent) {
			if e.Proof != nil {
				if e.Version != e.Proof.Event.Version {
					return nil, usagef("%s: the proof of version %d belongs to version %d", name, e.Version,
						e.Proof.Event.Version)
				}
				proofs = append(proofs, *e.Proof)
			}
		}
	}
	if len(proofs) == 0 {
		return nil, usagef("%s contains no proofs", name).
			hinted("make them with: taskledger prove KIND BIZ_ID -o jsonl")
	}
	return proofs, nil
}

func checkProof(p seal.Proof, checkpoints []seal.Checkpoint) checkedProof {
	checked := checkedProof{
		Event: fmt.Sprintf("%s@%d", p.Event.Key, p.Event.Version), Type: p.Event.Type, Leaf: p.Leaf,
		Size: p.Checkpoint.Size, Erased: p.IsErased(),
	}
	at := slices.Index(checkpoints, p.Checkpoint)
	if at < 0 {
		at = slices.IndexFunc(checkpoints, func(c seal.Checkpoint) bool { return c.Size == p.Checkpoint.Size })
	}
	if at < 0 {
		checked.Problem = fmt.Sprintf("no checkpoint is of %s leaves", count(p.Checkpoint.Size))
	} else if err := p.Check(checkpoints[at]); err != nil {
		checked.Problem = err.Error()
	} else {
		checked.Valid = true
	}
	return checked
}
