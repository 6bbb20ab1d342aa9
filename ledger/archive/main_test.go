package archive_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/ledger/archive"
)

// writtenArchive: the test binary writes the volume of these tests into this directory if it is set.
const writtenArchive = "ARCHIVE_TEST_DIRECTORY"

func TestMain(m *testing.M) {
	dir := os.Getenv(writtenArchive)
	if dir == "" {
		os.Exit(longtest.Run(m))
	}
	if _, err := write(context.Background(), archive.Directory(dir), manyEvents); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
