package attempt

import (
	"testing"
	"unsafe"
)

// Each task in flight uses both, and Go allocates objects in sizes such as these two.
func TestSizesInFlight(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(Task{}); got > 320 {
		t.Errorf("a task has %d bytes, want at most 320", got)
	}
	if got := unsafe.Sizeof(Attempt{}); got > 384 {
		t.Errorf("an attempt has %d bytes, want at most 384", got)
	}
}
