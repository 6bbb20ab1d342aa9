package api_test

import (
	"os"
	"testing"

	"github.com/taskledger/taskledger/internal/longtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(idleVariable) != "" {
		waitIdle(os.Stdin)
		return
	}
	os.Exit(longtest.Run(m))
}
