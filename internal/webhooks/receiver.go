package webhooks

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/settings"
	"github.com/taskledger/taskledger/ledger"
)

// Receiver is an HTTP server that gets events.
type Receiver struct {
	Name string `json:"name"` // 1 to 50 of A-Z, a-z, 0-9, _ and -
	Endpoint

	Kinds []ledger.Kind      `json:"kinds"` // of the events. Default: all but taskledger.*.
	Types []ledger.EventType `json:"types"` // of the events. Default: all.

	// Order is OrderTask to send the events of a task in the order of their versions: each event is sent after the
	// previous one was delivered or given up. Default: retries let a later event overtake an earlier one.
	Order Order `json:"order"`

	Slots int `json:"slots"` // requests at a time, in each process. Default: 8.
	// Retry is the policy of failed deliveries. Default: 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h, then dead.
	Retry *ledger.RetryPolicy `json:"retry"`
	// FromBeginning begins a new receiver at the first event of the ledger. Default: at the present.
	FromBeginning bool `json:"from_beginning"`
}

// Order is an order of deliveries, see [Receiver].
type Order string

// OrderTask is the order of the events of each task.
const OrderTask Order = "task"

const (
	defaultSlots = 8
	maxSlots     = 1000
)

// defaultRetry is the schedule that Standard Webhooks recommends.
var defaultRetry = ledger.RetryPolicy{Ladder: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour}}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,50}$`)

// Kind returns the kind of the deliveries of a receiver.
func Kind(receiver string) ledger.Kind { return ledger.Kind(reserved.DeliveryPrefix + receiver) }

// Subscriber returns the name of the subscriber of a receiver.
func Subscriber(receiver string) string { return "webhook-" + receiver }

// Validate reports every fault at once, each an [*ledger.InvalidError] with the name of the field. It reads the file or
// the variable of the secret, and opens no connection.
func (r Receiver) Validate() error { return errors.Join(r.faults()...) }

func (r Receiver) faults() (faults []error) {
	fault := func(field, value, rule string, a ...any) {
		faults = append(faults, &ledger.InvalidError{Field: field, Value: value, Rule: fmt.Sprintf(rule, a...)})
	}
	if !nameRule.MatchString(r.Name) {
		fault("name", r.Name, "must be 1 to 50 of A-Z, a-z, 0-9, _ and -")
	}
	faults = append(faults, r.Endpoint.faults()...)
	for _, kind := range r.Kinds {
		if err := kind.Validate(); err != nil {
			faults = append(faults, err)
		} else if strings.HasPrefix(string(kind), reserved.DeliveryPrefix) {
			fault("kinds", string(kind), "must not be kinds of deliveries, which would cause deliveries themselves")
		}
	}
	for _, t := range r.Types {
		if t.State() == ledger.StateNone {
			fault("types", string(t), "must be types of events")
		}
	}
	if r.Order != "" && r.Order != OrderTask {
		fault("order", string(r.Order), "must be task, or left out")
	}
	if r.Slots < 0 || r.Slots > maxSlots {
		fault("slots", fmt.Sprint(r.Slots), "must be between 1 and %d", maxSlots)
	}
	if r.Retry != nil {
		if err := r.Retry.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

func (r Receiver) withDefaults() Receiver {
	if r.Slots == 0 {
		r.Slots = defaultSlots
	}
	if r.Timeout == 0 {
		r.Timeout = settings.Duration(defaultTimeout)
	}
	if r.Retry == nil {
		r.Retry = &defaultRetry
	}
	return r
}

// wants reports whether the receiver gets an event.
func (r Receiver) wants(e ledger.Event) bool {
	if len(r.Types) > 0 && !slices.Contains(r.Types, e.Type) {
		return false
	}
	if len(r.Kinds) == 0 {
		return !reserved.IsKind(e.Kind)
	}
	return slices.Contains(r.Kinds, e.Kind)
}
