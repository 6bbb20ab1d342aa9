package outbox_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
)

func TestTally(t *testing.T) {
	t.Parallel()
	tooLarge := &stream.RefusedError{Code: 10054, Text: "message size exceeds maximum allowed"}
	tests := []struct {
		name    string
		results []stream.Result
		gaps    [][2]uint64
		refused int
		failed  error
		loss    bool
	}{
		{"consecutive", []stream.Result{{Seq: 8}, {Seq: 9}}, nil, 0, nil, false},
		{"somebody before and between", []stream.Result{{Seq: 10}, {Seq: 12}}, [][2]uint64{{8, 9}, {11, 11}}, 0, nil, false},
		{"duplicates prove nothing", []stream.Result{{Seq: 3, Duplicate: true}, {Seq: 8}}, nil, 0, nil, false},
		{"given out before", []stream.Result{{Seq: 7}}, nil, 0, nil, true},
		{"given out twice", []stream.Result{{Seq: 8}, {Seq: 8}}, nil, 0, nil, true},
		{"refused for itself", []stream.Result{{Err: tooLarge}, {Seq: 8}}, nil, 1, nil, false},
		{"unanswered", []stream.Result{{Seq: 8}, {Err: stream.ErrNoAck}, {Err: stream.ErrDisconnected}}, nil, 0, stream.ErrNoAck, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			gaps, refused, failed, err := outbox.Tally(7, test.results)
			if diff := cmp.Diff(test.gaps, gaps); diff != "" || refused != test.refused || failed != test.failed || outbox.IsLoss(err) != test.loss {
				t.Errorf("gaps %v, refused %d, failed %v, error %v", gaps, refused, failed, err)
			}
		})
	}
}
