package ledger_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// Messages of one group have the same fingerprint, messages of different groups have different ones.
func TestFingerprintGroups(t *testing.T) {
	t.Parallel()
	groups := [][]string{
		{"no customer 17", "no customer 4711", "no  customer\n1"},
		{`no customer "Smith"`, `no customer "O'Hara 12"`, `no customer ""`},
		{"cannot open 'a/b.txt'", "cannot open 'c.txt'"},
		{"cannot open the user's file", "cannot open the  user's file"},
		{"order 6f1c2a0e-8f5b-4d1e-9d37-0a1b2c3d4e5f is gone", "order ffffffff-ffff-4fff-8fff-ffffffffffff is gone"},
		{"at 0xc000123abc: nil", "at 0xdeadbeef: nil"},
		{
			"blob 3f786850e387550fdab836ed7e6dc881de23001b is corrupt",
			"blob 89e6c98d92887913cadf06b2adb97f26cde4849b is corrupt",
		},
		{"file cafe0123456 is corrupt", "file 5afe0123456 is corrupt", "file c0000000000 is corrupt"},
		{"blob defacedfeed is corrupt"},
		{"timed out after 1.5s", "timed out after 30s"},
		{"dial tcp 10.0.0.1:5432: connection refused", "dial tcp 192.168.17.4:80: connection refused"},
		{"dial tcp 10.0.0.1:5432: no route to host"},
		{"order 17: status 401", "order 4711: status 401"},
		{"order 17: status 500"},
		{"POST /v1/orders/17: HTTP/1.1 401", "POST /v1/orders/18: HTTP/1.1 401"},
		{"POST /v1/orders/17: HTTP/1.1 500"},
		{"statusCode=429 after 3 s", "statusCode=429 after 10 s"},
		{"code: 1062 at row 3", "code: 1063 at row 4"}, // not a status
		{""},
	}
	seen := map[string]string{}
	for _, group := range groups {
		first := ledger.Fingerprint("T", group[0])
		for _, message := range group {
			if got := ledger.Fingerprint("T", message); got != first {
				t.Errorf("%q has fingerprint %s, %q has %s", message, got, group[0], first)
			}
		}
		if other, ok := seen[first]; ok {
			t.Errorf("%q has the fingerprint of %q", group[0], other)
		}
		seen[first] = group[0]
		if ledger.Fingerprint("U", group[0]) == first {
			t.Errorf("%q: the fingerprint does not depend on the type", group[0])
		}
	}
}

// These fingerprints never change, because stored ones group dead tasks.
func TestFingerprintIsStable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ errorType, message, want string }{
		{errorType: "*errors.errorString", message: "no customer 17", want: "77e2e2705ea532c6"},
		{errorType: "", message: "", want: "01ba4719c80b6fe9"},
	} {
		if got := ledger.Fingerprint(test.errorType, test.message); got != test.want {
			t.Errorf("%s %q: %s, want %s", test.errorType, test.message, got, test.want)
		}
	}
}

func TestErrorFingerprintOfForeignShapes(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"error":{"message":"a 1","type":"T","fingerprint":"0123456789abcdef"}}`: "0123456789abcdef",
		`{"error":{"message":"a 1","type":"T","fingerprint":"<script>"}}`:         ledger.Fingerprint("T", "a 2"),
		`{"error":{"message":"a 1","type":"T"}}`:                                  ledger.Fingerprint("T", "a 2"),
		`{"reason":"poison"}`:                                                     ledger.Fingerprint("", "poison"),
		`{"error":"text"}`:                                                        ledger.Fingerprint("", ""),
		`[1]`:                                                                     ledger.Fingerprint("", ""),
		``:                                                                        ledger.Fingerprint("", ""),
	} {
		e := ledger.Event{Type: ledger.EventBuried, Data: json.RawMessage(data)}
		if got := e.ErrorFingerprint(); got != want {
			t.Errorf("%s: %s, want %s", data, got, want)
		}
	}
}

// Every text has a fingerprint, which does not depend on a number at its end.
func FuzzFingerprint(f *testing.F) {
	f.Add("no customer 17")
	f.Add(`"'` + "`" + `0x1 ffffffff-ffff`)
	f.Fuzz(func(t *testing.T, message string) {
		if got := ledger.Fingerprint("T", message); len(got) != 16 || strings.ToLower(got) != got {
			t.Errorf("%q", got)
		}
		if ledger.Fingerprint("T", message+" 1") != ledger.Fingerprint("T", message+" 22") && len(message) < 4000 {
			t.Errorf("%q: the fingerprint depends on the number at its end", message)
		}
	})
}
