package stream

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestParseAck(t *testing.T) {
	tests := []struct {
		answer string
		want   Result // compared with errors.Is
	}{
		{`{"stream":"LEDGER","seq":7}`, Result{Seq: 7}},
		{`{"stream":"LEDGER","seq":18446744073709551615}`, Result{Seq: 1<<64 - 1}},
		{`{"stream":"LEDGER","seq":7,"duplicate": true}`, Result{Seq: 7}},
		{`{"stream":"LEDGER","domain":"hub","seq":7}`, Result{Seq: 7}},
		{`{"stream":"LEDGER","domain":"hub","seq":7,"duplicate":true}`, Result{Seq: 7}},
		{`{"stream":"LEDGER","seq":0}`, Result{Err: ErrNoAck}},
		{`{"stream":"LEDGER","seq":18446744073709551616}`, Result{Err: ErrNoAck}},
		{`{"stream":"OTHER","seq":7}`, Result{Err: ErrNoStream}},
		{`{"stream":"LEDGER","seq":`, Result{Err: ErrNoAck}},
		{`hello`, Result{Err: ErrNoAck}},
		{``, Result{Err: ErrNoAck}},
	}
	for _, test := range tests {
		got := acksOf(Name).parse(nil, []byte(test.answer))
		if got.Seq != test.want.Seq || !errors.Is(got.Err, test.want.Err) {
			t.Errorf("%s: %+v, want %+v", test.answer, got, test.want)
		}
	}
	if got := acksOf(Name).parse(nats.Header{"Status": {"503"}}, nil); !errors.Is(got.Err, ErrNoStream) {
		t.Errorf("no responders: %+v", got)
	}
	var refused *RefusedError
	got := acksOf(Name).parse(nil, []byte(
		`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"LEDGER","seq":0}`))
	if !errors.As(got.Err, &refused) || !refused.Full() || refused.ForMessage() {
		t.Errorf("full: %+v", got)
	}
	got = acksOf(Name).parse(nil, []byte(`{"error":{"code":400,"err_code":10054,`+
		`"description":"message size exceeds maximum allowed"},"stream":"LEDGER","seq":0}`))
	if !errors.As(got.Err, &refused) || refused.Full() || !refused.ForMessage() {
		t.Errorf("too large: %+v", got)
	}
}

// The parser without JSON and the JSON decoder return the same result.
func FuzzParseAck(f *testing.F) {
	f.Add([]byte(`{"stream":"LEDGER","seq":7}`))
	f.Add([]byte(`{"stream":"LEDGER","seq":7,"duplicate": true}`))
	f.Add([]byte(`{"stream":"LEDGER","seq":07}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		got := acksOf(Name).parse(nil, answer)
		if got.Err != nil {
			if got.Seq != 0 {
				t.Errorf("%s: %+v", answer, got)
			}
			return
		}
		var want struct {
			Stream string
			Seq    uint64
		}
		if err := json.Unmarshal(answer, &want); err != nil || want.Stream != Name || want.Seq != got.Seq {
			t.Errorf("%s: %+v, JSON has %+v, %v", answer, got, want, err)
		}
	})
}

func TestOwnSettingsAreSuitable(t *testing.T) {
	if got := None.unsuitable(None.settings(Config{}, "i")); got != nil {
		t.Errorf("our own stream is unsuitable: %v", got)
	}
}
