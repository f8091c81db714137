{{- define "tessera.name" -}}
{{- printf "%s-%s" .Release.Name .Values.party | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "tessera.selector" -}}
app.kubernetes.io/name: {{ .Values.party }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tessera.labels" -}}
{{ include "tessera.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | quote }}
app.kubernetes.io/part-of: tessera
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "tessera.file" -}}
{{- if eq .Values.party "aggregator" -}}aggregator.toml{{- else -}}owner.toml{{- end -}}
{{- end -}}

{{- define "tessera.container" -}}
image: "{{ .Values.image.prefix }}/{{ .Values.party }}:{{ .Values.image.tag }}"
imagePullPolicy: IfNotPresent
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}
