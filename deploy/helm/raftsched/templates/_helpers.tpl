{{- define "raftsched.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "raftsched.labels" -}}
app.kubernetes.io/name: raftsched
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Called with (list CONTEXT "node"). */}}
{{- define "raftsched.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: raftsched
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "raftsched.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "raftsched.nodes" -}}
{{ include "raftsched.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "raftsched.endpoints" -}}
{{- $name := include "raftsched.name" . -}}
{{- $domain := include "raftsched.nodes" . -}}
{{- range $i := until (int .Values.nodes.count) -}}
{{- if $i }},{{ end }}{{ $name }}-{{ $i }}.{{ $domain }}:7400
{{- end -}}
{{- end }}

{{- define "raftsched.members" -}}
{{- $name := include "raftsched.name" . -}}
{{- $domain := include "raftsched.nodes" . -}}
{{- range $i := until (int .Values.nodes.count) -}}
{{- $host := printf "%s-%d.%s" $name $i $domain -}}
{{- if $i }},{{ end }}{{ $name }}-{{ $i }}={{ $host }}:7410/{{ $host }}:7400
{{- end -}}
{{- end }}

{{- define "raftsched.container" -}}
image: {{ include "raftsched.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  privileged: false
  readOnlyRootFilesystem: true
{{- end }}

{{/* A pod of ours needs nothing of Kubernetes. */}}
{{- define "raftsched.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
serviceAccountName: {{ include "raftsched.name" . }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How the gateway and workers reach the nodes. */}}
{{- define "raftsched.client" -}}
- {name: RAFTSCHED_ENDPOINTS, value: {{ include "raftsched.endpoints" . | quote }}}
{{- if .Values.tls.secretName }}
- {name: RAFTSCHED_CA_FILE, value: /tls/ca.crt}
{{- if not .Values.tokens.enabled }}
- {name: RAFTSCHED_CERT_FILE, value: /tls/tls.crt}
- {name: RAFTSCHED_KEY_FILE, value: /tls/tls.key}
{{- end }}
{{- else }}
- {name: RAFTSCHED_INSECURE, value: "yes"}
{{- end }}
{{- end }}
