package archive_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/ledger"
)

// A line is parsed as package json does, if it is what that record is written as. Any other text is refused.
func TestParseLine(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	run, leaf := int32(2), int64(1<<40)
	var lines [][]byte
	for _, r := range []archive.Record{
		{}, {Salt: []byte{}}, {XID: -1 << 63, Leaf: &leaf, Salt: bytes.Repeat([]byte{0xfe}, 16)},
	} {
		r.Position, r.Version, r.Attempt, r.Type = 1<<62, 1<<30, 3, "succeeded"
		lines = append(lines, archive.AppendLine(nil, &r))
		r.Key = ledger.Key{Kind: "a.b", BizID: "ü \"\\\u2028<&>\u0000\x7f\U0001F600\ufffd"}
		r.RecordedAt = time.Date(2026, 12, 1, 2, 3, 4, 500_000, time.UTC)
		r.Run, r.LoginID, r.Shard, r.DataVersion, r.Priority = &run, -5, 63, 1, -100
		r.Data, r.Meta, r.Actor = text(`{"a":"\\\"\n"}`), text(""), text("null")
		r.OrderKey, r.Partition = text("k\r\t\b\f"), text("},")
		lines = append(lines, archive.AppendLine(nil, &r))
	}
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []byte("\"\\,:{}un0129-+.eEZ\x00\n \xff\xc3\xa8/=")
	accepted := 0
	for i := range 30_000 {
		line := bytes.TrimSuffix(bytes.Clone(lines[i%len(lines)]), []byte{'\n'})
		for range i % 3 { // a third is as it was written
			at := random.IntN(len(line))
			c := alphabet[random.IntN(len(alphabet))]
			switch random.IntN(3) {
			case 0:
				line[at] = c
			case 1:
				line = append(line[:at], line[at+1:]...)
			default:
				line = append(line[:at], append([]byte{c}, line[at:]...)...)
			}
		}
		var want archive.Record
		isValid := json.Unmarshal(line, &want) == nil &&
			bytes.Equal(archive.AppendLine(nil, &want), append(bytes.Clone(line), '\n'))
		got, err := archive.ParseLine(line)
		if (err == nil) != isValid || isValid && !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %+v, %v, want %+v, %t", line, got, err, want, isValid)
		}
		if isValid {
			accepted++
		}
	}
	if accepted < 10_000 {
		t.Errorf("%d lines were accepted", accepted)
	}
}
