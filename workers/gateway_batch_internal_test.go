package workers

import (
	"fmt"
	"testing"
)

// A list of batches is read as it was written, with one answer of each process, and stays short.
func TestBatches(t *testing.T) {
	t.Parallel()
	text := ""
	for i := range 3 * maxBatches {
		all, err := parseBatches(text)
		if err != nil {
			t.Fatal(err)
		}
		text = all.with(batchOf{process: "first", number: int64(i + 1)})
		if all, err = parseBatches(text); err != nil || all[0] != (batchOf{process: "first", number: int64(i + 1)}) {
			t.Fatalf("%q: %v", text, err)
		}
		text = all.with(batchOf{process: fmt.Sprintf("PROCESS%d", i), number: maxBatchNumber})
	}
	all, err := parseBatches(text)
	if err != nil || len(all) != maxBatches || len(text) > maxBatchText {
		t.Fatalf("%q: %v", text, err)
	}
	last := fmt.Sprintf("PROCESS%d", 3*maxBatches-1)
	if all.of(last) != maxBatchNumber || all.of("first") != 3*maxBatches || all.of("PROCESS0") != 0 {
		t.Errorf("%q", text)
	}
	for _, text := range []string{"x", "x.", ".1", "x.0", "x.-1", "x.1~", "~x.1", "x.9007199254740993", "x.1.2"} {
		if got, err := parseBatches(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
