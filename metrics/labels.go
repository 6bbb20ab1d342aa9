package metrics

import "github.com/taskledger/taskledger/ledger"

const (
	// maxKinds is the greatest number of kinds with metrics of their own.
	maxKinds = 100
	// others is the label of all other kinds. It is no valid kind.
	others = "(others)"
)

// labels are the labels of kinds. The first kinds keep their own.
type labels map[ledger.Kind]string

// of returns the label of a kind.
func (l labels) of(k ledger.Kind) string {
	if label, found := l[k]; found {
		return label
	}
	if len(l) >= maxKinds {
		return others
	}
	l[k] = string(k)
	return string(k)
}
