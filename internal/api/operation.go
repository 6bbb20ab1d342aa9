package api

import "net/http"

// operation is a call of the API.
type operation struct {
	method, path string // a pattern of [http.ServeMux]
	least        Role
	handle       func(h *Handler, w http.ResponseWriter, r *http.Request, c *caller) error
}

// operations are all calls. openapi.yaml describes the same calls.
var operations = []operation{
	{"POST", "/v1/tasks", Producer, (*Handler).postTask},
	{"POST", "/v1/tasks:batch", Producer, (*Handler).postBatch},
	{"GET", "/v1/tasks", Viewer, (*Handler).listTasks},
	{"GET", "/v1/tasks/{kind}/{biz_id}", Viewer, (*Handler).getTask},
	{"DELETE", "/v1/tasks/{kind}/{biz_id}", Operator, (*Handler).cancelTask},
	{"POST", "/v1/work", Worker, (*Handler).postWork},
	{"POST", "/v1/work:heartbeat", Worker, (*Handler).postHeartbeat},
	{"POST", "/v1/work:finish", Worker, (*Handler).postFinish},
	{"POST", "/v1/work:fail", Worker, (*Handler).postFail},
	{"POST", "/v1/work:snooze", Worker, (*Handler).postSnooze},
	{"POST", "/v1/work:progress", Worker, (*Handler).postProgress},
	{"POST", "/v1/work:release", Worker, (*Handler).postRelease},
	{"POST", "/v1/tasks/{kind}/{change}", Operator, (*Handler).changeTask},
	{"GET", "/v1/tasks/{kind}/{biz_id}/events", Viewer, (*Handler).listHistory},
	{"GET", "/v1/events", Viewer, (*Handler).getEvents},
	{"GET", "/v1/kinds", Viewer, (*Handler).listKinds},
	{"POST", "/v1/kinds/{change}", Admin, (*Handler).changeKind},
	{"GET", "/v1/limits", Viewer, (*Handler).listLimits},
	{"PUT", "/v1/limits/{name}", Operator, (*Handler).putLimit},
	{"DELETE", "/v1/limits/{name}", Operator, (*Handler).deleteLimit},
	{"GET", "/v1/stats", Viewer, (*Handler).listStats},
	{"GET", "/v1/status", Viewer, (*Handler).getStatus},
	{"GET", "/v1/conditions", Viewer, (*Handler).listConditions},
	{"GET", "/v1/workers", Viewer, (*Handler).listWorkers},
	{"GET", "/v1/schedules", Viewer, (*Handler).listSchedules},
	{"GET", "/v1/subscribers", Viewer, (*Handler).listSubscribers},
	{"GET", "/v1/openapi.yaml", Viewer, (*Handler).getDocument},
	{"GET", "/version", Viewer, (*Handler).getVersion},
}
