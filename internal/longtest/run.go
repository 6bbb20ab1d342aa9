package longtest

import (
	"flag"
	"testing"
)

// atOnce is how many tests of a package run at once. Most tests wait for a lease, a deadline or a process, so more than
// the number of processors.
const atOnce = "6"

// Run runs the tests of a package, for its TestMain. Unless the flag -parallel is set, more of them run at once than
// there are processors.
func Run(m *testing.M) int {
	flag.Parse()
	isSet := false
	flag.Visit(func(f *flag.Flag) { isSet = isSet || f.Name == "test.parallel" })
	if !isSet {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err) // a bug: the flag exists in each test binary
		}
	}
	return m.Run()
}
