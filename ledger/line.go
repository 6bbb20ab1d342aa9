package ledger

import (
	"encoding/json"
	"strings"
)

// maxOrderKey is the length of an order key in bytes.
const maxOrderKey = 255

// memberPassIfDead is the member of an enqueued task's meta that contains [EnqueueOptions].PassIfDead.
const memberPassIfDead = "pass_if_dead"

// setLine checks and sets the order key.
func (r *firstEvent) setLine(o *EnqueueOptions) error {
	r.orderKey, r.passIfDead = o.OrderKey, o.PassIfDead
	switch {
	case o.OrderKey == "" && o.PassIfDead:
		return &InvalidError{Field: memberPassIfDead, Rule: "must be set together with an order key"}
	case o.OrderKey == "":
		return nil
	case o.CanRun:
		return &InvalidError{Field: "order_key", Value: o.OrderKey, Rule: "must not be set together with can_run"}
	}
	return checkText("order_key", o.OrderKey, maxOrderKey)
}

// storedMeta returns the meta with the member for PassIfDead. Other members stay as they are.
func (r firstEvent) storedMeta() json.RawMessage {
	if !r.passIfDead {
		return r.meta
	}
	const first = `{"` + memberPassIfDead + `":true`
	if len(r.meta) == 0 || string(r.meta) == "{}" {
		return json.RawMessage(first + "}")
	}
	return json.RawMessage(first + "," + strings.TrimPrefix(string(r.meta), "{"))
}
