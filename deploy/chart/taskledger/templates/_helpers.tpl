{{- define "taskledger.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "taskledger.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "taskledger.check" -}}
{{- if not .Values.secret }}
{{- fail "secret is required: the name of a secret with DATABASE_URL of a login with the role relay" }}
{{- end }}
{{- if and .Values.existingClaim (gt (int .Values.replicas) 1) }}
{{- fail (printf "existingClaim %s is the volume of one process: set replicas to 1, or leave it out, and each pod has an emptyDir" .Values.existingClaim) }}
{{- end }}
{{- end }}
