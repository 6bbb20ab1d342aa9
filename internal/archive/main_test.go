package archive_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/longtest"
)

// Environment variables of a child process. It writes the volume of these tests into the directory writtenArchive,
// or exports from a database into it, or imports from it into a database.
const (
	writtenArchive = "ARCHIVE_TEST_DIRECTORY"
	exportedFrom   = "ARCHIVE_TEST_EXPORT"
	importedInto   = "ARCHIVE_TEST_IMPORT"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(writtenArchive)
	if dir == "" {
		os.Exit(longtest.Run(m))
	}
	ctx, from, into := context.Background(), os.Getenv(exportedFrom), os.Getenv(importedInto)
	var err error
	if from+into == "" {
		_, err = write(ctx, archive.Directory(dir), manyEvents)
	} else {
		err = exportOrImport(ctx, archive.Directory(dir), from, into)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
