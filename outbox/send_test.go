package outbox_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
)

func TestSumUp(t *testing.T) {
	t.Parallel()
	tooLarge := &stream.RefusedError{Code: 10054, Text: "message size exceeds maximum allowed"}
	tests := []struct {
		name    string
		results []stream.Result // after sequence 7
		gaps    [][2]uint64
		rejects int
		failure error
		loss    bool
	}{
		{name: "consecutive", results: []stream.Result{{Seq: 8}, {Seq: 9}}},
		{
			name:    "foreign messages before and between",
			results: []stream.Result{{Seq: 10}, {Seq: 12}},
			gaps:    [][2]uint64{{8, 9}, {11, 11}},
		},
		{name: "a duplicate does not count", results: []stream.Result{{Seq: 3, Duplicate: true}, {Seq: 8}}},
		{name: "assigned before", results: []stream.Result{{Seq: 7}}, loss: true},
		{name: "assigned twice", results: []stream.Result{{Seq: 8}, {Seq: 8}}, loss: true},
		{name: "a message refused", results: []stream.Result{{Err: tooLarge}, {Seq: 8}}, rejects: 1},
		{
			name:    "not acknowledged",
			results: []stream.Result{{Seq: 8}, {Err: stream.ErrNoAck}, {Err: stream.ErrDisconnected}},
			failure: stream.ErrNoAck,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			gaps, rejects, failure, err := outbox.SumUp(7, test.results)
			if diff := cmp.Diff(test.gaps, gaps); diff != "" {
				t.Error(diff)
			}
			if rejects != test.rejects || !errors.Is(failure, test.failure) || outbox.IsLoss(err) != test.loss {
				t.Errorf("%d rejects, failure %v, error %v", rejects, failure, err)
			}
		})
	}
}
