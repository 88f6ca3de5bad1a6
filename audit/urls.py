from django.urls import URLPattern, path

from audit import views

urlpatterns: list[URLPattern] = [path("", views.record_list, name="audit")]
