package api

import (
	"net/http"

	"github.com/taskledger/taskledger/api/client"
)

// postWork gives tasks to a worker.
func (h *Handler) postWork(w http.ResponseWriter, r *http.Request, _ *caller) error {
	return refuseWork[client.Ask](h, w, r)
}

// postHeartbeat renews the tasks of a worker.
func (h *Handler) postHeartbeat(w http.ResponseWriter, r *http.Request, _ *caller) error {
	return refuseWork[client.Heartbeat](h, w, r)
}

// postFinish ends an attempt with a result.
func (h *Handler) postFinish(w http.ResponseWriter, r *http.Request, _ *caller) error {
	return refuseWork[client.Finish](h, w, r)
}

// postFail ends an attempt with an error.
func (h *Handler) postFail(w http.ResponseWriter, r *http.Request, _ *caller) error {
	return refuseWork[client.Fail](h, w, r)
}

// postSnooze ends an attempt without a failure.
func (h *Handler) postSnooze(w http.ResponseWriter, r *http.Request, _ *caller) error {
	return refuseWork[client.Snooze](h, w, r)
}

// postProgress records how far an attempt is.
func (h *Handler) postProgress(w http.ResponseWriter, r *http.Request, _ *caller) error {
	return refuseWork[client.ReportProgress](h, w, r)
}

// postRelease gives back the tasks of a worker.
func (h *Handler) postRelease(w http.ResponseWriter, r *http.Request, _ *caller) error {
	return refuseWork[client.Release](h, w, r)
}

// refuseWork answers a call of a server that gives out no work.
func refuseWork[T any](h *Handler, w http.ResponseWriter, r *http.Request) error {
	if err := parseQuery(r).err; err != nil {
		return err
	}
	var body T
	if err := h.decode(w, r, maxBodyBytes, false, &body); err != nil {
		return err
	}
	return problem(codeWorkOff, "this server gives out no work")
}
