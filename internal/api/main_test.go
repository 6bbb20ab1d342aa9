package api_test

import (
	"os"
	"testing"

	"github.com/taskledger/taskledger/internal/longtest"
)

func TestMain(m *testing.M) { os.Exit(longtest.Run(m)) }
